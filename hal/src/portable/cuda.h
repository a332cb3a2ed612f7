/* The language of portable kernels, for NVRTC. portable.rs explains the names. */
#define KERNEL extern "C" __global__
#define GROUP_SIZE(x, y, z) __launch_bounds__((x) * (y) * (z))
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define BARRIER() __syncthreads()
#define GLOBAL_ID(d) ((size_t)GROUP_ID(d) * LOCAL_SIZE_##d + LOCAL_ID(d))
#define LOCAL_ID(d) LOCAL_ID_##d
#define GROUP_ID(d) GROUP_ID_##d
#define GROUPS(d) GROUPS_##d
#define LOCAL_SIZE_0 blockDim.x
#define LOCAL_SIZE_1 blockDim.y
#define LOCAL_SIZE_2 blockDim.z
#define LOCAL_ID_0 threadIdx.x
#define LOCAL_ID_1 threadIdx.y
#define LOCAL_ID_2 threadIdx.z
#define GROUP_ID_0 blockIdx.x
#define GROUP_ID_1 blockIdx.y
#define GROUP_ID_2 blockIdx.z
#define GROUPS_0 gridDim.x
#define GROUPS_1 gridDim.y
#define GROUPS_2 gridDim.z

typedef unsigned int uint;
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
/* Stored only: load_f16 and store_f16 convert. */
typedef unsigned short f16;
typedef unsigned short bf16;

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define BITS_F32(x) __float_as_uint(x)
#define F32_BITS(x) __uint_as_float(x)
#define F32X4(a, b, c, d) make_float4((a), (b), (c), (d))

DEVICE float load_f16(const f16 *p, size_t i) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(p[i]));
    return x;
}
DEVICE void store_f16(float x, f16 *p, size_t i) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    p[i] = bits;
}

DEVICE float divide(float x, float y) { return x / y; }

DEVICE u32 compare_and_swap(volatile u32 *p, u32 old, u32 new_) { return atomicCAS((u32 *)p, old, new_); }
