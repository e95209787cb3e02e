/* Who uses a GPU. Every process that is simulated computes; none draws. */
#include "nvml.h"

#define WHOLE_GPU 0xffffffffu /* no MIG instance */

typedef struct {
    unsigned pid;
    ull usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    ull usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    ull usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
    ull usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    unsigned version, mode, numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
    unsigned pid;
    ull timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    ull timeStamp;
    unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    unsigned version, processSamplesCount;
    ull lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

/* Fills table, and sets *count to how many there are; INSUFFICIENT_SIZE where *count was less. */
static nvmlReturn_t take_table(const struct jw_gpu *gpu, struct jw_process *table, unsigned *count,
                               const void *destination) {
    const unsigned room = *count;
    TRY(process_table(gpu, table, count));
    if (*count == 0) return NVML_SUCCESS;
    return *count > room || !destination ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t list(struct jw_gpu *gpu, unsigned *count, nvmlProcessInfo_t *infos) {
    struct jw_process table[JW_PROCESSES];
    REQUIRE(count);
    const nvmlReturn_t result = take_table(gpu, table, count, infos);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        infos[i] = (nvmlProcessInfo_t){table[i].pid, table[i].memory_b, WHOLE_GPU, WHOLE_GPU};
    return result;
}

static nvmlReturn_t list_v1(struct jw_gpu *gpu, unsigned *count, nvmlProcessInfo_v1_t *infos) {
    struct jw_process table[JW_PROCESSES];
    REQUIRE(count);
    const nvmlReturn_t result = take_table(gpu, table, count, infos);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){table[i].pid, table[i].memory_b};
    return result;
}

#define COMPUTE(call, type, lister)                                              \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *count, type *infos) {   \
        ENTER(JW_COST_SCAN);                                                     \
        return lister(gpu, count, infos);                                        \
    }
#define NONE(call)                                                               \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *count, void *infos) {   \
        (void)infos;                                                             \
        ENTER(JW_COST_SCAN);                                                     \
        REQUIRE(count);                                                          \
        *count = 0;                                                              \
        return NVML_SUCCESS;                                                     \
    }

COMPUTE(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, list_v1)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, list)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, list)
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                       nvmlProcessDetailList_v1_t *all) {
    enum { MODE_COMPUTE = 0, MODE_ALL = 3 };
    struct jw_process table[JW_PROCESSES];
    ENTER(JW_COST_SCAN);
    REQUIRE(all);
    if (all->version != VERSION(nvmlProcessDetailList_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    REQUIRE(all->mode <= MODE_ALL);
    if (all->mode != MODE_COMPUTE && all->mode != MODE_ALL) {
        all->numProcArrayEntries = 0;
        return NVML_SUCCESS;
    }
    const nvmlReturn_t result = take_table(gpu, table, &all->numProcArrayEntries, all->procArray);
    for (unsigned i = 0; result == NVML_SUCCESS && i < all->numProcArrayEntries; i++)
        all->procArray[i] = (nvmlProcessDetail_v1_t){table[i].pid, table[i].memory_b, WHOLE_GPU,
                                                     WHOLE_GPU, 0};
    return result;
}

/* The pieces know how busy the GPU was, not with whom: its processes share that evenly. */
static nvmlReturn_t load_of_each(struct jw_gpu *gpu, ull last_seen, struct jw_process *table,
                                 unsigned *count, const void *destination,
                                 nvmlProcessUtilizationInfo_v1_t *each) {
    const int64_t period = gpu->utilisation_period_ns;
    const int64_t end = gpu->phase_ns + tick_before(gpu, sensed_ns(gpu), period) * period;
    double busy, memory;
    TRY(shares(gpu, end - period, end, &busy, &memory));
    const nvmlReturn_t result = take_table(gpu, table, count, destination);
    if (*count == 0 || (ull)wall_us(end) <= last_seen) return NVML_ERROR_NOT_FOUND;
    *each = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = (ull)wall_us(end),
                                              .smUtil = percent(busy / *count),
                                              .memUtil = percent(memory / *count)};
    return result;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                 nvmlProcessUtilizationSample_t *samples,
                                                 unsigned *count, ull last_seen) {
    struct jw_process table[JW_PROCESSES];
    nvmlProcessUtilizationInfo_v1_t each;
    ENTER(JW_COST_SCAN);
    REQUIRE(count);
    const nvmlReturn_t result = load_of_each(gpu, last_seen, table, count, samples, &each);
    for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){.pid = table[i].pid,
                                                      .timeStamp = each.timeStamp,
                                                      .smUtil = each.smUtil,
                                                      .memUtil = each.memUtil};
    return result;
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                       nvmlProcessesUtilizationInfo_v1_t *all) {
    struct jw_process table[JW_PROCESSES];
    nvmlProcessUtilizationInfo_v1_t each;
    ENTER(JW_COST_SCAN);
    REQUIRE(all);
    if (all->version != VERSION(nvmlProcessesUtilizationInfo_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const nvmlReturn_t result = load_of_each(gpu, all->lastSeenTimeStamp, table,
                                             &all->processSamplesCount, all->procUtilArray, &each);
    for (unsigned i = 0; result == NVML_SUCCESS && i < all->processSamplesCount; i++) {
        all->procUtilArray[i] = each;
        all->procUtilArray[i].pid = table[i].pid;
    }
    return result;
}
