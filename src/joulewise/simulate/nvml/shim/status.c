/* Load, memory, heat, modes. */
#include "nvml.h"

#include <unistd.h>

#define BAR1_B (256ull << 20)
#define PCIE_WINDOW_NS 20000000
#define FAN_QUIET_PCT 30
#define FAN_QUIET_C 50

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    ull total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    ull total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_v1_t;

typedef struct {
    ull l1Cache, l2Cache, deviceMemory, registerFile;
} nvmlEccErrorCounts_t;

/* ---- load ---- */

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    ENTER(JW_COST_SCAN);
    REQUIRE(rates);
    const struct grid grid = utilisation_grid(gpu);
    const int64_t end = tick_at_ns(&grid, last_tick(&grid, sensed_ns(gpu)));
    double busy, memory;
    TRY(shares(gpu, end - grid.period_ns, end, &busy, &memory));
    rates->gpu = percent(busy);
    rates->memory = percent(memory);
    return NVML_SUCCESS;
}

/* Nothing that is simulated encodes or decodes. */
#define VIDEO_ENGINE(call)                                                              \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *utilisation, unsigned *period_us) { \
        ENTER(JW_COST_SCAN);                                                            \
        REQUIRE(utilisation && period_us);                                              \
        *utilisation = 0;                                                               \
        *period_us = (unsigned)(gpu->utilisation_period_ns / 1000);                     \
        return NVML_SUCCESS;                                                            \
    }

VIDEO_ENGINE(nvmlDeviceGetEncoderUtilization)
VIDEO_ENGINE(nvmlDeviceGetDecoderUtilization)

/* No workload says what crosses the link: a fiftieth of what it can carry comes in while memory
 * is busy, and a tenth of that goes out. */
API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kb_s) {
    ENTER(JW_COST_PCIE);
    REQUIRE(kb_s && counter <= 1);
    const int64_t now = sensed_ns(gpu);
    double busy, memory;
    TRY(shares(gpu, now - PCIE_WINDOW_NS, now, &busy, &memory));
    const double link_kb_s = 985e3 * (1 << (gpu->pcie_generation - 3)) * 16;
    const bool transmitted = counter == 0;
    *kb_s = (unsigned)(link_kb_s * memory / (transmitted ? 500 : 50));
    return NVML_SUCCESS;
}

/* ---- memory ---- */

static nvmlReturn_t memory_used(const struct jw_gpu *gpu, ull *used) {
    struct jw_process table[JW_PROCESSES];
    unsigned count;
    TRY(process_table(gpu, table, &count));
    *used = 0;
    for (unsigned i = 0; i < count; i++) *used += table[i].memory_b;
    const ull room = gpu->memory_b - gpu->reserved_b;
    if (*used > room) *used = room;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ull used;
    ENTER(JW_COST_READ);
    REQUIRE(memory);
    TRY(memory_used(gpu, &used));
    used += gpu->reserved_b;
    *memory = (nvmlMemory_t){.total = gpu->memory_b, .free = gpu->memory_b - used, .used = used};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ull used;
    ENTER(JW_COST_READ);
    REQUIRE(memory);
    if (memory->version != VERSION(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(memory_used(gpu, &used));
    *memory = (nvmlMemory_v2_t){.version = memory->version,
                                .total = gpu->memory_b,
                                .reserved = gpu->reserved_b,
                                .free = gpu->memory_b - gpu->reserved_b - used,
                                .used = used};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlMemory_t *bar1) {
    ENTER(JW_COST_READ);
    REQUIRE(bar1);
    *bar1 = (nvmlMemory_t){.total = BAR1_B, .free = BAR1_B - (2ull << 20), .used = 2ull << 20};
    return NVML_SUCCESS;
}

/* ---- heat ---- */

static nvmlReturn_t temperature(struct jw_gpu *gpu, int *celsius) {
    struct jw_piece piece;
    TRY(piece_at(gpu, sensed_ns(gpu), &piece));
    *celsius = (int)piece.temperature_c;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    ENTER(JW_COST_READ);
    REQUIRE(celsius && sensor == 0);
    return temperature(gpu, (int *)celsius);
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *answer) {
    ENTER(JW_COST_READ);
    REQUIRE(answer);
    if (answer->version != VERSION(nvmlTemperature_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(answer->sensorType == 0);
    return temperature(gpu, &answer->temperature);
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned type,
                                                   unsigned *celsius) {
    enum { SHUTDOWN, SLOWDOWN, MEMORY_MAXIMUM, GPU_MAXIMUM, THRESHOLDS = 8 };
    ENTER(JW_COST_IDENTITY);
    REQUIRE(celsius && type < THRESHOLDS);
    if (type > GPU_MAXIMUM || type == MEMORY_MAXIMUM) return NVML_ERROR_NOT_SUPPORTED;
    *celsius = type == SHUTDOWN ? gpu->shutdown_c : gpu->slowdown_c;
    return NVML_SUCCESS;
}

static nvmlReturn_t fan_speed(struct jw_gpu *gpu, unsigned fan, unsigned *speed) {
    int celsius;
    REQUIRE(speed);
    if (gpu->fans == 0) return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(fan < gpu->fans);
    TRY(temperature(gpu, &celsius));
    const double heat = (double)(celsius - FAN_QUIET_C) / ((double)gpu->slowdown_c - FAN_QUIET_C);
    const double clipped = heat < 0 ? 0 : heat > 1 ? 1 : heat;
    *speed = (unsigned)(FAN_QUIET_PCT + clipped * (100 - FAN_QUIET_PCT));
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *speed) {
    ENTER(JW_COST_READ);
    return fan_speed(gpu, 0, speed);
}

API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *speed) {
    ENTER(JW_COST_READ);
    return fan_speed(gpu, fan, speed);
}

API nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned *fans) {
    ENTER(JW_COST_IDENTITY);
    REQUIRE(fans);
    *fans = gpu->fans;
    return NVML_SUCCESS;
}

/* ---- modes ---- */

API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    ENTER(JW_COST_READ);
    REQUIRE(mode);
    *mode = gpu->persistence;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    ENTER_SETTER;
    REQUIRE(mode <= 1);
    gpu->persistence = mode;
    changed(gpu);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    ENTER(JW_COST_READ);
    REQUIRE(mode);
    *mode = gpu->compute_mode;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode) {
    enum { EXCLUSIVE_THREAD = 1, EXCLUSIVE_PROCESS = 3 };
    ENTER_SETTER;
    REQUIRE(mode <= EXCLUSIVE_PROCESS);
    if (mode == EXCLUSIVE_THREAD) return NVML_ERROR_NOT_SUPPORTED;
    gpu->compute_mode = mode;
    changed(gpu);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER(JW_COST_READ);
    REQUIRE(current && pending);
    (void)gpu; /* whole: now, and after a reset */
    *current = *pending = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, unsigned *enabled) {
    ENTER(JW_COST_IDENTITY);
    REQUIRE(enabled);
    *enabled = gpu->is_module;
    return NVML_SUCCESS;
}

/* The CPUs on the same module: those of this machine, shared out among the modules in rows. */
API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words,
                                          unsigned long *cpus) {
    ENTER(JW_COST_IDENTITY);
    REQUIRE(words && cpus);
    if (!gpu->is_module) return NVML_ERROR_NOT_SUPPORTED;
    const unsigned bits = 8 * sizeof *cpus;
    const long online = sysconf(_SC_NPROCESSORS_CONF);
    for (unsigned i = 0; i < words; i++) cpus[i] = 0;
    for (long cpu = 0; cpu < online && cpu < (long)(words * bits); cpu++)
        if (cpu * gpu->modules / online == gpu->module_index || online < gpu->modules)
            cpus[cpu / bits] |= 1ul << cpu % bits;
    return NVML_SUCCESS;
}

/* ---- errors of memory: there are none ---- */

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER(JW_COST_READ);
    REQUIRE(current && pending);
    if (!gpu->ecc) return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, unsigned *mode) {
    ENTER(JW_COST_IDENTITY);
    REQUIRE(mode);
    if (!gpu->ecc) return NVML_ERROR_NOT_SUPPORTED;
    *mode = 1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned error, unsigned counter,
                                             ull *errors) {
    ENTER(JW_COST_READ);
    REQUIRE(errors && error <= 1 && counter <= 1);
    if (!gpu->ecc) return NVML_ERROR_NOT_SUPPORTED;
    *errors = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned error,
                                                unsigned counter, nvmlEccErrorCounts_t *errors) {
    ENTER(JW_COST_READ);
    REQUIRE(errors && error <= 1 && counter <= 1);
    if (!gpu->ecc) return NVML_ERROR_NOT_SUPPORTED;
    *errors = (nvmlEccErrorCounts_t){0};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned error,
                                                 unsigned counter, unsigned location, ull *errors) {
    ENTER(JW_COST_READ);
    REQUIRE(errors && error <= 1 && counter <= 1 && location <= 7);
    if (!gpu->ecc) return NVML_ERROR_NOT_SUPPORTED;
    *errors = 0;
    return NVML_SUCCESS;
}
