/* What the files of the shim share: NVML's types as far as they are answered, and ours. */
#ifndef JOULEWISE_NVML_H
#define JOULEWISE_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef unsigned long long ull;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

enum { VOLTA = 5, AMPERE = 7, BRAND_GEFORCE = 5 };
enum { INSTANT = 0, AVERAGE = 1 };
enum { SCOPE_GPU = 0, SCOPE_MODULE = 1, SCOPE_MEMORY = 2 }; /* nvmlPowerScopeType_t */

#define VERSION(type, number) ((unsigned)(sizeof(type) | (number) << 24))

/* session.c: the connection to the simulation, and what every call begins with. */
extern struct jw_header *jw;
struct jw_gpu *gpu_at(unsigned index);
unsigned index_of(const struct jw_gpu *gpu);
nvmlDevice_t handle_of(unsigned index);
bool initialised(void);
nvmlReturn_t enter(nvmlDevice_t device, const char *call, int cost, struct jw_gpu **gpu);
nvmlReturn_t enter_system(const char *call, int cost);
nvmlReturn_t enter_setter(nvmlDevice_t device, const char *call, struct jw_gpu **gpu);
void changed(const struct jw_gpu *gpu);
int64_t monotonic_ns(void);
int64_t now_ns(void); /* as monotonic_ns, unless tests hold the clock */
int64_t wall_us(int64_t t_ns);
struct jw_fault *fault_at(struct jw_gpu *gpu, uint32_t kind, int64_t t_ns);

#define TRY(call)                              \
    do {                                       \
        const nvmlReturn_t tried = (call);     \
        if (tried != NVML_SUCCESS) return tried; \
    } while (0)
#define ENTER(cost)                                                   \
    struct jw_gpu *gpu;                                               \
    const nvmlReturn_t entered = enter(device, __func__, cost, &gpu); \
    if (entered != NVML_SUCCESS) return entered
#define ENTER_SETTER                                                   \
    struct jw_gpu *gpu;                                                \
    const nvmlReturn_t entered = enter_setter(device, __func__, &gpu); \
    if (entered != NVML_SUCCESS) return entered
#define REQUIRE(condition) \
    if (!(condition)) return NVML_ERROR_INVALID_ARGUMENT

/* The moments at which something updates: phase_ns + tick * period_ns, late by sigma_ns times a
 * deviate of the channel. */
struct grid {
    uint64_t seed;
    int64_t phase_ns;
    int64_t period_ns;
    double sigma_ns;
    int channel;
};

/* sensor.c: what the sensors show. All are of one moment, sensed_ns. TIMEOUT where the engine
 * stopped in the middle of writing, NO_DATA where the ring has forgotten. */
int64_t sensed_ns(struct jw_gpu *gpu);
int64_t last_tick(const struct grid *grid, int64_t t_ns);
int64_t tick_at_ns(const struct grid *grid, int64_t tick);
struct grid power_grid(const struct jw_gpu *gpu);
struct grid utilisation_grid(const struct jw_gpu *gpu);
nvmlReturn_t power_mw(struct jw_gpu *gpu, int scope, int channel, int64_t tick, unsigned *mw);
nvmlReturn_t counter_mj(struct jw_gpu *gpu, ull *mj);
nvmlReturn_t shares(const struct jw_gpu *gpu, int64_t from_ns, int64_t to_ns, double *busy,
                    double *memory);
nvmlReturn_t piece_at(const struct jw_gpu *gpu, int64_t t_ns, struct jw_piece *piece);
nvmlReturn_t process_table(const struct jw_gpu *gpu, struct jw_process *table, unsigned *count);
nvmlReturn_t accounted_table(const struct jw_gpu *gpu, struct jw_accounted *table, unsigned *count);
unsigned percent(double share);
double noise(uint64_t seed, int64_t tick, int channel);

#endif
