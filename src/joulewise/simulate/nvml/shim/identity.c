/* Who the driver and the GPUs are. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DRIVER_VERSION "580.95.05"
#define NVML_VERSION "13.580.95.05"
#define CUDA_VERSION 13000
#define IDENTITY JW_COST_IDENTITY

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    char busId[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_v1_t;

typedef struct {
    unsigned version, type;
    union {
        char str[41];
        unsigned char bytes[16];
    } value;
} nvmlUUID_v1_t;

static nvmlReturn_t put(const char *text, char *buffer, unsigned length) {
    if (!buffer) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

/* ---- the system ---- */

#define ENTER_SYSTEM                                                     \
    const nvmlReturn_t entered = enter_system(__func__, JW_COST_IDENTITY); \
    if (entered != NVML_SUCCESS) return entered

API const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        [0] = "Success",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires reset",
        [17] = "GPU access blocked by the operating system",
        [18] = "Driver/library version mismatch",
        [19] = "In use by another client",
        [20] = "Insufficient Memory",
        [21] = "No data",
        [22] = "vGPU ECC not supported",
        [23] = "Insufficient resources",
        [24] = "Frequency not supported",
        [25] = "Argument version mismatch",
        [26] = "Deprecated",
        [27] = "Not ready",
        [28] = "GPU not found",
        [29] = "Invalid state",
    };
    const bool known = result >= 0 && (size_t)result < sizeof texts / sizeof *texts;
    return known ? texts[result] : "Unknown Error";
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER_SYSTEM;
    return put(DRIVER_VERSION, version, length);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    return put(NVML_VERSION, version, length);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER_SYSTEM;
    REQUIRE(version);
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char path[32], text[1024] = "";
    ENTER_SYSTEM;
    REQUIRE(name && length);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file) return NVML_ERROR_NOT_FOUND;
    const size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}

/* ---- handles: getting one counts as a call on that GPU ---- */

#define NEED_INIT \
    if (!initialised()) return NVML_ERROR_UNINITIALIZED

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER_SYSTEM;
    REQUIRE(count);
    *count = jw->gpus;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

static nvmlReturn_t hand_out(unsigned index, const char *call, nvmlDevice_t *device) {
    struct jw_gpu *gpu;
    const nvmlReturn_t result = enter(handle_of(index), call, IDENTITY, &gpu);
    if (result == NVML_SUCCESS) *device = handle_of(index);
    return result;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    NEED_INIT;
    REQUIRE(device && index < jw->gpus);
    return hand_out(index, __func__, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find(const char *wanted, size_t offset, const char *call, nvmlDevice_t *device) {
    for (unsigned i = 0; i < jw->gpus; i++) {
        const char *own = (const char *)gpu_at(i) + offset;
        if (*own && strcasecmp(own, wanted) == 0) return hand_out(i, call, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NEED_INIT;
    REQUIRE(uuid && device);
    return find(uuid, offsetof(struct jw_gpu, uuid), __func__, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_v1_t *uuid, nvmlDevice_t *device) {
    NEED_INIT;
    REQUIRE(uuid && device);
    if (uuid->version != VERSION(nvmlUUID_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type != 1) return NVML_ERROR_NOT_SUPPORTED;
    return find(uuid->value.str, offsetof(struct jw_gpu, uuid), __func__, device);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    NEED_INIT;
    REQUIRE(serial && device);
    return find(serial, offsetof(struct jw_gpu, serial), __func__, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned domain, bus, slot, function = 0;
    char normal[32];
    NEED_INIT;
    REQUIRE(bus_id && device);
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2) return NVML_ERROR_NOT_FOUND;
    }
    snprintf(normal, sizeof normal, "%08X:%02X:%02X.%X", domain, bus, slot, function);
    return find(normal, offsetof(struct jw_gpu, bus_id), __func__, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* ---- one GPU ---- */

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    ENTER(IDENTITY);
    return put(gpu->name, name, length);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    ENTER(IDENTITY);
    return put(gpu->uuid, uuid, length);
}

API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    ENTER(IDENTITY);
    if (!gpu->serial[0]) return NVML_ERROR_NOT_SUPPORTED;
    return put(gpu->serial, serial, length);
}

API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length) {
    ENTER(IDENTITY);
    return put("88.00.00.00.00", version, length);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER(IDENTITY);
    REQUIRE(pci);
    *pci = (nvmlPciInfo_t){.bus = gpu->bus,
                           .pciDeviceId = gpu->pci_device_id,
                           .pciSubSystemId = gpu->pci_subsystem_id};
    memcpy(pci->busId, gpu->bus_id, sizeof pci->busId);
    memcpy(pci->busIdLegacy, gpu->bus_id_legacy, sizeof pci->busIdLegacy);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    ENTER(IDENTITY);
    REQUIRE(pci);
    *pci = (nvmlPciInfo_v2_t){.bus = gpu->bus,
                              .pciDeviceId = gpu->pci_device_id,
                              .pciSubSystemId = gpu->pci_subsystem_id};
    memcpy(pci->busId, gpu->bus_id_legacy, sizeof pci->busId);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci) {
    ENTER(IDENTITY);
    REQUIRE(pci);
    if (pci->version != VERSION(nvmlPciInfoExt_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *pci = (nvmlPciInfoExt_v1_t){.version = pci->version,
                                 .bus = gpu->bus,
                                 .pciDeviceId = gpu->pci_device_id,
                                 .pciSubSystemId = gpu->pci_subsystem_id,
                                 .baseClass = 3,
                                 .subClass = 2};
    memcpy(pci->busId, gpu->bus_id, sizeof pci->busId);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER(IDENTITY);
    REQUIRE(major && minor);
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    return NVML_SUCCESS;
}

#define NUMBER(call, value)                                      \
    API nvmlReturn_t call(nvmlDevice_t device, unsigned *answer) { \
        ENTER(IDENTITY);                                         \
        REQUIRE(answer);                                         \
        *answer = (unsigned)(value);                             \
        return NVML_SUCCESS;                                     \
    }

NUMBER(nvmlDeviceGetIndex, index_of(gpu))
NUMBER(nvmlDeviceGetMinorNumber, index_of(gpu))
NUMBER(nvmlDeviceGetArchitecture, gpu->architecture)
NUMBER(nvmlDeviceGetBrand, gpu->brand)
NUMBER(nvmlDeviceGetNumGpuCores, gpu->cores)
NUMBER(nvmlDeviceGetMemoryBusWidth, gpu->memory_bus_bits)
NUMBER(nvmlDeviceGetBoardId, gpu->bus << 8)
NUMBER(nvmlDeviceGetMultiGpuBoard, 0)
NUMBER(nvmlDeviceGetVirtualizationMode, 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, 0)
NUMBER(nvmlDeviceIsMigDeviceHandle, 0)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, gpu->pcie_generation)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, gpu->pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, gpu->pcie_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, 0)
NUMBER(nvmlDeviceGetDisplayMode, 0)
NUMBER(nvmlDeviceGetDisplayActive, 0)
