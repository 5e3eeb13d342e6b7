/* A CUDA runtime for a machine without a GPU.
 *
 * Loaded before NVIDIA's libraries, it answers what ONNX Runtime's CUDA provider asks of them:
 * device memory is the host's, copies are really made, kernels do nothing. Which provider runs a
 * node, what is bound where and what is copied are then as on a GPU; every computed number is not.
 *
 * What happens is written to the file that RIG_TRACE names, a line each. RIG_DEVICES is how many
 * devices there are (1); RIG_ARCHITECTURE is their compute capability (90, as an H200's).
 * The build adds a function that does nothing for each other name that the provider wants.
 */

#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MULTIPROCESSORS = 132, HANDLE_BYTES = 64, ALIGNMENT = 256, VERSION = 13000 };
static const size_t DEVICE_BYTES = 140ull << 30;

static int setting(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

static void record(const char *format, ...) {
  static int file = -2;
  if (file == -2) {
    const char *path = getenv("RIG_TRACE");
    file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  }
  if (file < 0) return;
  va_list arguments;
  va_start(arguments, format);
  vdprintf(file, format, arguments);
  va_end(arguments);
}

/* Handles: only their addresses count. */

static cudaError_t make_handle(void *where) {
  *(void **)where = calloc(1, HANDLE_BYTES);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return make_handle(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return make_handle(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  return make_handle(stream);
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return make_handle(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return make_handle(event);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties) {
  return make_handle(pool);
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit,
                                void **jit_values, unsigned jit_count,
                                enum cudaLibraryOption *options, void **values, unsigned count) {
  return make_handle(library);
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  return make_handle(kernel);
}
int cublasCreate_v2(void **handle) { return make_handle(handle); }
int cublasLtCreate(void **handle) { return make_handle(handle); }

/* Memory. */

static cudaError_t allocate(void **where, size_t size) {
  return posix_memalign(where, ALIGNMENT, size ? size : ALIGNMENT) ? cudaErrorMemoryAllocation
                                                                   : cudaSuccess;
}

cudaError_t cudaMalloc(void **where, size_t size) {
  record("allocate %zu\n", size);
  return allocate(where, size);
}
cudaError_t cudaMallocHost(void **where, size_t size) { return allocate(where, size); }
cudaError_t cudaHostAlloc(void **where, size_t size, unsigned flags) {
  return allocate(where, size);
}
cudaError_t cudaMallocFromPoolAsync(void **where, size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return cudaMalloc(where, size);
}
static cudaError_t release(void *memory) {
  free(memory);
  return cudaSuccess;
}
cudaError_t cudaFree(void *memory) { return release(memory); }
cudaError_t cudaFreeHost(void *memory) { return release(memory); }
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) { return release(memory); }
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  *available = *total = DEVICE_BYTES;
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value) {
  *(unsigned long long *)value = 0;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory) {
  memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeDevice;
  attributes->devicePointer = (void *)memory;
  return cudaSuccess;
}

/* Copies. */

static cudaError_t copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  static const char *const KINDS[] = {"host", "to_device", "to_host", "on_device", "any"};
  record("copy %s %zu\n", KINDS[kind], size);
  memmove(to, from, size);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  return copy(to, from, size, kind);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, size, kind);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
  for (size_t row = 0; row < height; row++)
    copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind);
  return cudaSuccess;
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset,
                                 enum cudaMemcpyKind kind) {
  memset(to, 0, size);
  return cudaSuccess;
}
cudaError_t cudaMemset(void *memory, int value, size_t size) {
  memset(memory, value, size);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream) {
  return cudaMemset(memory, value, size);
}

/* Waiting. */

static cudaError_t synchronise(const char *what) {
  record("synchronise %s\n", what);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) { return synchronise("device"); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return synchronise("stream"); }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  function(data);
  return cudaSuccess;
}

/* Kernels. */

static cudaError_t launch(void) {
  record("launch\n");
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  return launch();
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments) {
  return launch();
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared, cudaStream_t stream) {
  return launch();
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream) {
  return launch();
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream) {
  return launch();
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = attributes->ptxVersion = setting("RIG_ARCHITECTURE", 90);
  attributes->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                   const void *function, int size,
                                                                   size_t shared, unsigned flags) {
  *blocks = 2;
  return cudaSuccess;
}

/* Devices. */

static int devices(void) { return setting("RIG_DEVICES", 1); }

cudaError_t cudaGetDeviceCount(int *count) {
  *count = devices();
  return *count ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!devices()) return cudaErrorNoDevice;
  return device < devices() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  if (device >= devices()) return cudaErrorInvalidDevice;
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "no GPU at all");
  properties->major = setting("RIG_ARCHITECTURE", 90) / 10;
  properties->minor = setting("RIG_ARCHITECTURE", 90) % 10;
  properties->totalGlobalMem = DEVICE_BYTES;
  properties->multiProcessorCount = MULTIPROCESSORS;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] =
      1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 232448;
  properties->sharedMemPerMultiprocessor = 233472;
  properties->l2CacheSize = 50 << 20;
  properties->memoryBusWidth = 6144;
  properties->asyncEngineCount = 3;
  properties->concurrentKernels = properties->memoryPoolsSupported = 1;
  properties->unifiedAddressing = properties->managedMemory = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = properties.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = properties.sharedMemPerBlockOptin; break;
    case cudaDevAttrWarpSize: *value = properties.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = MULTIPROCESSORS; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
  *function = NULL;
  if (result) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

/* Names, of which the caller prints the text. */

const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorNoDevice ? "cudaErrorNoDevice" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "an error";
  }
}
const char *cublasGetStatusName(int status) { return "a status"; }
const char *cublasGetStatusString(int status) { return "a status"; }
int cublasGetMathMode(void *handle, int *mode) {
  *mode = 0;
  return 0;
}
