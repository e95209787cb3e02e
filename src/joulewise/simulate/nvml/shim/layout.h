/* The memory that the engine (Python) and every NVML client (the shim, in C) share.
 *
 * layout.py reads this file: one declaration a line, types of stdint.h, float, double, char or
 * a struct declared above, and whole numbers as the only constants. Natural alignment throughout.
 */
#ifndef JOULEWISE_LAYOUT_H
#define JOULEWISE_LAYOUT_H

#include <stdint.h>

#define JW_MAGIC 0x31304d53574a
#define JW_MAX_GPUS 64
#define JW_RING 16384
#define JW_PROCESSES 64
#define JW_FAULTS 32
#define JW_ACCOUNTED 512
#define JW_MEMORY_CLOCKS 8
#define JW_CHANNELS 6
#define JW_HOST_RING 4096

/* Classes of latency. */
#define JW_COST_IDENTITY 0
#define JW_COST_READ 1
#define JW_COST_SCAN 2
#define JW_COST_SET 3
#define JW_COST_PCIE 4
#define JW_COSTS 5

/* Kinds of fault; faults.py has the words for them. */
#define JW_FAULT_LOST 1
#define JW_FAULT_CALL 2
#define JW_FAULT_COUNTER_RESET 3
#define JW_FAULT_COUNTER_BACKWARDS 4
#define JW_FAULT_COUNTER_UNSUPPORTED 5
#define JW_FAULT_STUCK 6
#define JW_FAULT_STALE 7
#define JW_FAULT_LIMIT_REFUSED 8
#define JW_FAULT_DENIED 9
#define JW_FAULT_SLOW 10

/* From t_ns to the next piece's everything is constant; energy_j was drawn up to t_ns. */
struct jw_piece {
    int64_t t_ns;
    double energy_j;
    float power_w;
    float sm_mhz;
    float memory_mhz;
    float busy;
    float memory_busy;
    float temperature_c;
    uint32_t throttle;
    uint32_t pstate;
};

/* What the CPU and its memory on the GPU's module draw: as jw_piece, and in a ring of its own. */
struct jw_host_piece {
    int64_t t_ns;
    double energy_j;
    double power_w;
};

struct jw_process {
    uint32_t pid;
    uint64_t memory_b;
};

/* What a process has used of a GPU in accounting mode; time_ns is 0 while it runs. */
struct jw_accounted {
    uint32_t pid;
    uint32_t running;
    uint32_t busy_pct;
    uint32_t memory_pct;
    uint64_t memory_b;
    int64_t start_ns;
    int64_t time_ns;
};

/* amount: ns for stale and slow, mJ for a counter that goes backwards.
 * energy_j: what had been drawn when a counter-reset came; publishing keeps it up to date.
 * held_mw: what a stuck sensor repeats, by scope and channel, plus 1; 0 until it is first read. Where
 * the ring has forgotten its beginning by then, it repeats the first value that is read. */
struct jw_fault {
    int64_t start_ns;
    int64_t end_ns;
    int64_t amount;
    double energy_j;
    uint32_t kind;
    uint32_t code;
    _Atomic uint32_t held_mw[JW_CHANNELS];
    char call[64];
};

struct jw_faults {
    uint32_t count;
    struct jw_fault entries[JW_FAULTS];
};

struct jw_gpu {
    char name[96];
    char uuid[96];
    char serial[32];
    char bus_id[32];
    char bus_id_legacy[16];
    uint64_t memory_b;
    uint64_t reserved_b;
    uint32_t bus;
    uint32_t pci_device_id;
    uint32_t pci_subsystem_id;
    uint32_t pcie_generation;
    uint32_t architecture;
    uint32_t brand;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t cores;
    uint32_t fans;
    uint32_t memory_bus_bits;
    uint32_t ecc;

    uint32_t limit_minimum_mw;
    uint32_t limit_maximum_mw;
    uint32_t limit_default_mw;

    /* is_module: the scope of the module is answered, and its limit. The plain power call and the
     * counter are the module's where plain_is_module and counter_is_module. memory_full_w is 0
     * where the scope of the memory is not answered. modules, module_index: how many modules there
     * are, and which this is. */
    uint32_t is_module;
    uint32_t plain_is_module;
    uint32_t counter_is_module;
    uint32_t modules;
    uint32_t module_index;
    uint32_t module_limit_mw;
    double memory_idle_w;
    double memory_full_w;

    uint32_t slowdown_c;
    uint32_t shutdown_c;
    uint32_t memory_clocks;
    uint32_t memory_clock_mhz[JW_MEMORY_CLOCKS];
    double sm_min_mhz;
    double sm_max_mhz;
    double sm_step_mhz;

    /* When sensor and counter update: phase_ns + k * period_ns, and late by tick_sigma_ns times
     * a deviate. The counter shows what was drawn counter_lag_ns before. */
    int64_t phase_ns;
    int64_t period_ns;
    double tick_sigma_ns;
    int64_t window_ns;
    int64_t average_window_ns;
    int64_t lag_ns;
    int64_t counter_phase_ns;
    int64_t counter_period_ns;
    double counter_tick_sigma_ns;
    int64_t counter_lag_ns;
    int64_t utilisation_period_ns;
    double gain;
    double noise_w;
    double quantum_w;
    double counter_step_j;
    uint64_t seed;
    uint32_t plain_is_average;
    uint32_t buffer_samples;

    /* What clients set. A pair of clocks is (first << 32) | second; 0 is none. */
    _Atomic uint64_t sm_lock;
    _Atomic uint64_t memory_lock;
    _Atomic uint64_t application_clocks;
    _Atomic uint32_t limit_mw;
    _Atomic uint32_t persistence;
    _Atomic uint32_t compute_mode;
    _Atomic uint32_t accounting;
    _Atomic uint32_t accounting_clear;

    /* What the engine writes, between two increments of sequence (odd: it is writing). Pieces
     * are numbered from the beginning; number n lies at n modulo JW_RING. Once first is not 0,
     * nobody knows what was before it: a reading that needs it is NVML_ERROR_NO_DATA, and a
     * buffer of samples begins later. */
    _Atomic uint32_t sequence;
    uint64_t first;
    uint64_t end;
    double counter_base_j;
    uint64_t host_end;
    uint32_t processes;
    struct jw_process process[JW_PROCESSES];
    uint32_t accounted_processes;
    struct jw_accounted accounted[JW_ACCOUNTED];
    struct jw_faults faults;
    struct jw_piece ring[JW_RING];
    struct jw_host_piece host[JW_HOST_RING];
};

/* frozen_ns: the time, if not 0 (tests). socket: the engine's, an abstract name; empty where there
 * is no engine. as_root: whether any user may set, as root may. faults: of calls that concern no
 * one GPU. pcie_wait_ns: how long a call about PCIe waits for the driver beside its latency, in the
 * mean; latency.py says how it varies, by contention_seed. */
struct jw_header {
    uint64_t magic;
    uint64_t header_size;
    uint64_t gpu_size;
    uint32_t gpus;
    uint32_t as_root;
    int64_t wall_offset_ns;
    _Atomic int64_t frozen_ns;
    int64_t latency_ns[JW_COSTS];
    int64_t pcie_wait_ns;
    uint64_t contention_seed;
    char socket[96];
    struct jw_faults faults;
};

#endif
