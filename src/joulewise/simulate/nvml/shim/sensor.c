/* What the sensors show, from the pieces that the engine publishes: sensor.py has the same
 * formulas, for virtual time. Every operation stands in the same order, so that both get the
 * same bits. */
#include "nvml.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define S_PER_NS 1e-9
#define PATIENCE_NS 50000000 /* for an engine that stopped in the middle of writing */

/* ---- reading while the engine may write ---- */

/* Python has none of its own: the engine calls this between the sequence and what it guards. */
API void jw_fence(void) { atomic_thread_fence(memory_order_seq_cst); }

static bool torn(const struct jw_gpu *gpu, uint32_t sequence) {
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&gpu->sequence, memory_order_relaxed) != sequence;
}

static const struct jw_piece *numbered(const struct jw_gpu *gpu, uint64_t number) {
    return &gpu->ring[number % JW_RING];
}

/* Before the first piece of all, its power went on; what the ring dropped, nobody knows. */
static bool remembers(const struct jw_gpu *gpu, int64_t t_ns) {
    return gpu->first == 0 || numbered(gpu, gpu->first)->t_ns <= t_ns;
}

/* Begins a consistent read (the reader's side of the seqlock) of what was from oldest_ns on. */
static nvmlReturn_t settled(const struct jw_gpu *gpu, int64_t oldest_ns, uint32_t *sequence) {
    int64_t began_ns = 0; /* reading the clock takes as long as all the rest */
    bool known;
    do {
        while ((*sequence = atomic_load_explicit(&gpu->sequence, memory_order_acquire)) % 2) {
            if (!began_ns) began_ns = monotonic_ns();
            if (monotonic_ns() - began_ns > PATIENCE_NS) return NVML_ERROR_TIMEOUT;
            sched_yield();
        }
        known = remembers(gpu, oldest_ns);
    } while (torn(gpu, *sequence));
    return known ? NVML_SUCCESS : NVML_ERROR_NO_DATA;
}

/* The number of the piece that holds t_ns; the first and the last go on outside the ring. */
static uint64_t locate(const struct jw_gpu *gpu, int64_t t_ns) {
    uint64_t low = gpu->first, high = gpu->end;
    while (low + 1 < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (numbered(gpu, middle)->t_ns <= t_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double energy_at(const struct jw_gpu *gpu, int64_t t_ns) {
    const struct jw_piece *piece = numbered(gpu, locate(gpu, t_ns));
    return piece->energy_j + (double)piece->power_w * ((double)(t_ns - piece->t_ns) * S_PER_NS);
}

/* Of the CPU and its memory on the module; the first and the last piece go on. */
static double host_energy_at(const struct jw_gpu *gpu, int64_t t_ns) {
    if (!gpu->host_end) return 0;
    uint64_t low = gpu->host_end > JW_HOST_RING ? gpu->host_end - JW_HOST_RING : 0;
    uint64_t high = gpu->host_end;
    while (low + 1 < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (gpu->host[middle % JW_HOST_RING].t_ns <= t_ns)
            low = middle;
        else
            high = middle;
    }
    const struct jw_host_piece *piece = &gpu->host[low % JW_HOST_RING];
    return piece->energy_j + piece->power_w * ((double)(t_ns - piece->t_ns) * S_PER_NS);
}

static double scoped_energy_at(const struct jw_gpu *gpu, bool is_module, int64_t t_ns) {
    return energy_at(gpu, t_ns) + (is_module ? host_energy_at(gpu, t_ns) : 0);
}

nvmlReturn_t piece_at(const struct jw_gpu *gpu, int64_t t_ns, struct jw_piece *piece) {
    uint32_t sequence;
    do {
        TRY(settled(gpu, t_ns, &sequence));
        *piece = *numbered(gpu, locate(gpu, t_ns));
    } while (torn(gpu, sequence));
    return NVML_SUCCESS;
}

static nvmlReturn_t energy_between(const struct jw_gpu *gpu, bool is_module, int64_t from_ns,
                                   int64_t to_ns, double *j) {
    uint32_t sequence;
    do {
        TRY(settled(gpu, from_ns, &sequence));
        *j = scoped_energy_at(gpu, is_module, to_ns) - scoped_energy_at(gpu, is_module, from_ns);
    } while (torn(gpu, sequence));
    return NVML_SUCCESS;
}

nvmlReturn_t process_table(const struct jw_gpu *gpu, struct jw_process *table, unsigned *count) {
    uint32_t sequence;
    do {
        TRY(settled(gpu, INT64_MAX, &sequence));
        *count = gpu->processes < JW_PROCESSES ? gpu->processes : JW_PROCESSES;
        memcpy(table, gpu->process, *count * sizeof *table);
    } while (torn(gpu, sequence));
    return NVML_SUCCESS;
}

nvmlReturn_t accounted_table(const struct jw_gpu *gpu, struct jw_accounted *table,
                             unsigned *count) {
    uint32_t sequence;
    do {
        TRY(settled(gpu, INT64_MAX, &sequence));
        const unsigned known = gpu->accounted_processes;
        *count = known < JW_ACCOUNTED ? known : JW_ACCOUNTED;
        memcpy(table, gpu->accounted, *count * sizeof *table);
    } while (torn(gpu, sequence));
    return NVML_SUCCESS;
}

/* The mean shares of time in which a kernel ran, and in which memory was busy. */
nvmlReturn_t shares(const struct jw_gpu *gpu, int64_t from_ns, int64_t to_ns, double *busy,
                    double *memory) {
    uint32_t sequence;
    do {
        TRY(settled(gpu, from_ns, &sequence));
        *busy = *memory = 0;
        int64_t t = from_ns;
        for (uint64_t n = locate(gpu, from_ns); t < to_ns; n++) {
            const struct jw_piece *piece = numbered(gpu, n);
            const bool last = n + 1 >= gpu->end || numbered(gpu, n + 1)->t_ns >= to_ns;
            const int64_t until = last ? to_ns : numbered(gpu, n + 1)->t_ns;
            *busy += piece->busy * (double)(until - t);
            *memory += piece->memory_busy * (double)(until - t);
            t = until;
        }
    } while (torn(gpu, sequence));
    *busy /= (double)(to_ns - from_ns);
    *memory /= (double)(to_ns - from_ns);
    return NVML_SUCCESS;
}

/* ---- the sensors ---- */

int64_t sensed_ns(struct jw_gpu *gpu) {
    const struct jw_fault *stale = fault_at(gpu, JW_FAULT_STALE, now_ns());
    return now_ns() - (stale ? stale->amount : 0);
}

unsigned percent(double share) { return (unsigned)rint(share * 100); }

/* Noise that is a function of seed, tick and channel, so that every client reads the same. */
double noise(uint64_t seed, int64_t tick, int channel) {
    uint64_t x = seed * 0x9E3779B97F4A7C15u + (uint64_t)tick * 0xBF58476D1CE4E5B9u +
                 (uint64_t)channel * 0x94D049BB133111EBu;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    const uint64_t sum = (x & 0xFFFF) + (x >> 16 & 0xFFFF) + (x >> 32 & 0xFFFF) + (x >> 48);
    return ((double)sum / 65536 - 2 + 2.0 / 65536) * sqrt(3);
}

enum { POWER_TICK = 2, COUNTER_TICK = 3 }; /* channels of noise, beside INSTANT and AVERAGE */

struct grid power_grid(const struct jw_gpu *gpu) {
    return (struct grid){gpu->seed, gpu->phase_ns, gpu->period_ns, gpu->tick_sigma_ns, POWER_TICK};
}

static struct grid counter_grid(const struct jw_gpu *gpu) {
    return (struct grid){gpu->seed, gpu->counter_phase_ns, gpu->counter_period_ns,
                         gpu->counter_tick_sigma_ns, COUNTER_TICK};
}

struct grid utilisation_grid(const struct jw_gpu *gpu) {
    return (struct grid){gpu->seed, gpu->phase_ns, gpu->utilisation_period_ns, 0, 0};
}

int64_t tick_at_ns(const struct grid *grid, int64_t tick) {
    const int64_t due = grid->phase_ns + tick * grid->period_ns;
    if (grid->sigma_ns <= 0) return due;
    const double most = (double)(grid->period_ns / 2 - 1); /* so that ticks stay in order */
    const double late = rint(noise(grid->seed, tick, grid->channel) * grid->sigma_ns);
    return due + (int64_t)fmax(-most, fmin(most, late));
}

/* No tick is off by half a period, so that the last one is due, or its neighbour is. */
int64_t last_tick(const struct grid *grid, int64_t t_ns) {
    const int64_t since = t_ns - grid->phase_ns;
    const int64_t due = since / grid->period_ns - (since % grid->period_ns < 0);
    if (tick_at_ns(grid, due) > t_ns) return due - 1;
    return tick_at_ns(grid, due + 1) <= t_ns ? due + 1 : due;
}

/* The memory draws with its load, and no more than the GPU that it is a part of. */
static nvmlReturn_t memory_energy_j(const struct jw_gpu *gpu, int64_t from_ns, int64_t to_ns,
                                    double *j) {
    double busy, memory, whole_j;
    TRY(shares(gpu, from_ns, to_ns, &busy, &memory));
    TRY(energy_between(gpu, false, from_ns, to_ns, &whole_j));
    const double power_w = gpu->memory_idle_w + memory * (gpu->memory_full_w - gpu->memory_idle_w);
    *j = fmin(whole_j, power_w * ((double)(to_ns - from_ns) * S_PER_NS));
    return NVML_SUCCESS;
}

/* The memory's sensor has noise of its own, beyond the channels of the ticks. */
static int noise_channel(int scope, int channel) {
    return scope == SCOPE_MEMORY ? COUNTER_TICK + 1 : channel;
}

static nvmlReturn_t true_power_mw(const struct jw_gpu *gpu, int scope, int channel, int64_t tick,
                                  unsigned *mw) {
    const int64_t window = channel == AVERAGE ? gpu->average_window_ns : gpu->window_ns;
    const struct grid grid = power_grid(gpu);
    const int64_t end = tick_at_ns(&grid, tick) - gpu->lag_ns;
    double energy_j;
    if (scope == SCOPE_MEMORY)
        TRY(memory_energy_j(gpu, end - window, end, &energy_j));
    else
        TRY(energy_between(gpu, scope == SCOPE_MODULE, end - window, end, &energy_j));
    double power_w = energy_j / ((double)window * S_PER_NS) * gpu->gain +
                     gpu->noise_w * noise(gpu->seed, tick, noise_channel(scope, channel));
    if (power_w < 0) power_w = 0;
    if (gpu->quantum_w > 0) power_w = rint(power_w / gpu->quantum_w) * gpu->quantum_w;
    *mw = (unsigned)rint(power_w * 1000);
    return NVML_SUCCESS;
}

nvmlReturn_t power_mw(struct jw_gpu *gpu, int scope, int channel, int64_t tick, unsigned *mw) {
    const struct grid grid = power_grid(gpu);
    struct jw_fault *stuck = fault_at(gpu, JW_FAULT_STUCK, tick_at_ns(&grid, tick));
    if (!stuck) return true_power_mw(gpu, scope, channel, tick, mw);
    _Atomic uint32_t *const stored = &stuck->held_mw[2 * scope + channel];
    uint32_t held = *stored;
    if (!held) {
        const int64_t last = last_tick(&grid, stuck->start_ns);
        nvmlReturn_t result = true_power_mw(gpu, scope, channel, last, mw);
        if (result == NVML_ERROR_NO_DATA) result = true_power_mw(gpu, scope, channel, tick, mw);
        if (result != NVML_SUCCESS) return result;
        if (atomic_compare_exchange_strong(stored, &held, *mw + 1)) return NVML_SUCCESS;
    }
    *mw = held - 1;
    return NVML_SUCCESS;
}

/* What the counter has not counted: before the driver was loaded, and before any reset. */
static double uncounted_j(const struct jw_gpu *gpu, int64_t tick_ns) {
    double base_j = gpu->counter_base_j;
    for (uint32_t i = 0; i < gpu->faults.count; i++) {
        const struct jw_fault *fault = &gpu->faults.entries[i];
        if (fault->kind == JW_FAULT_COUNTER_RESET && fault->start_ns <= tick_ns)
            base_j = fmax(base_j, fault->energy_j);
    }
    return base_j;
}

nvmlReturn_t counter_mj(struct jw_gpu *gpu, ull *mj) {
    const struct grid grid = counter_grid(gpu);
    const int64_t tick_ns = tick_at_ns(&grid, last_tick(&grid, sensed_ns(gpu)));
    const int64_t until_ns = tick_ns - gpu->counter_lag_ns;
    double energy_j;
    uint32_t sequence;
    do {
        TRY(settled(gpu, until_ns, &sequence));
        energy_j = scoped_energy_at(gpu, gpu->counter_is_module, until_ns) -
                   uncounted_j(gpu, tick_ns);
    } while (torn(gpu, sequence));
    const struct jw_fault *backwards = fault_at(gpu, JW_FAULT_COUNTER_BACKWARDS, tick_ns);
    double counted_j = floor(gpu->gain * energy_j / gpu->counter_step_j) * gpu->counter_step_j;
    if (backwards) counted_j -= (double)backwards->amount / 1000;
    *mj = counted_j > 0 ? (ull)rint(counted_j * 1000) : 0;
    return NVML_SUCCESS;
}
