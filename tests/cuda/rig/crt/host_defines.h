/* What NVIDIA's headers expect of their compiler, for one that compiles no device code. */
#pragma once
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDACB
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __location__(a)
#define __host__
#define __device__
#define __global__
#define __specialization_static static
