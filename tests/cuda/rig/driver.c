/* A CUDA driver for a machine without a GPU: what the server asks of it, beside the runtime.
 *
 * RIG_DEVICES is how many devices there are (1).
 */

#include <stdlib.h>

enum { SUCCESS = 0, NO_DEVICE = 100, INVALID_DEVICE = 101 };
static const size_t DEVICE_BYTES = 140ull << 30;

static int devices(void) {
  const char *value = getenv("RIG_DEVICES");
  return value ? atoi(value) : 1;
}

int cuInit(unsigned flags) { return devices() ? SUCCESS : NO_DEVICE; }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < devices() ? SUCCESS : INVALID_DEVICE;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { return SUCCESS; }
int cuMemGetInfo_v2(size_t *available, size_t *total) {
  *available = *total = DEVICE_BYTES;
  return SUCCESS;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == NO_DEVICE ? "no CUDA-capable device is detected" : "invalid device ordinal";
  return SUCCESS;
}
