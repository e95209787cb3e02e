/* Accounting mode: what processes used, those that have ended too. The engine writes the records;
 * a client switches them on, off, and clears them. */
#include "nvml.h"

typedef struct {
    unsigned gpuUtilization, memoryUtilization;
    ull maxMemoryUsage, time, startTime;
    unsigned isRunning, reserved[5];
} nvmlAccountingStats_t;

API nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned *mode) {
    ENTER(JW_COST_READ);
    REQUIRE(mode);
    *mode = gpu->accounting;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, unsigned mode) {
    ENTER_SETTER;
    REQUIRE(mode <= 1);
    gpu->accounting = mode;
    changed(gpu);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device) {
    ENTER_SETTER;
    gpu->accounting_clear = 1;
    changed(gpu);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned *size) {
    ENTER(JW_COST_READ);
    REQUIRE(size);
    (void)gpu;
    *size = JW_ACCOUNTED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids) {
    struct jw_accounted table[JW_ACCOUNTED];
    ENTER(JW_COST_SCAN);
    REQUIRE(count);
    if (!gpu->accounting) return NVML_ERROR_NOT_SUPPORTED;
    const unsigned room = *count;
    TRY(accounted_table(gpu, table, count));
    if (*count && (*count > room || !pids)) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) pids[i] = table[i].pid;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid,
                                              nvmlAccountingStats_t *stats) {
    struct jw_accounted table[JW_ACCOUNTED];
    unsigned count;
    ENTER(JW_COST_SCAN);
    REQUIRE(stats);
    if (!gpu->accounting) return NVML_ERROR_NOT_SUPPORTED;
    TRY(accounted_table(gpu, table, &count));
    for (unsigned i = 0; i < count; i++) {
        const struct jw_accounted *process = &table[i];
        if (process->pid != pid) continue;
        *stats = (nvmlAccountingStats_t){.gpuUtilization = process->busy_pct,
                                         .memoryUtilization = process->memory_pct,
                                         .maxMemoryUsage = process->memory_b,
                                         .time = (ull)(process->time_ns / 1000000),
                                         .startTime = (ull)wall_us(process->start_ns),
                                         .isRunning = process->running};
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
