/* The language of portable kernels, for NVRTC. portable.rs explains the names. */
#define KERNEL extern "C" __global__
#define GROUP_SIZE(x, y, z) __launch_bounds__((x) * (y) * (z))
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define ALIGNED __attribute__((aligned(16)))
#define UNROLL _Pragma("unroll")
#define BARRIER() __syncthreads()
#define GLOBAL_ID(d) (GROUP_ID(d) * LOCAL_SIZE_##d + LOCAL_ID(d))
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

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
/* Stored only: load_f16 and store_f16 convert. */
struct f16 {
    u16 bits;
};
typedef unsigned short bf16;

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define BITS_F32(x) __float_as_uint(x)
#define F32_BITS(x) __uint_as_float(x)
#define F32X4(a, b, c, d) make_float4((a), (b), (c), (d))

DEVICE float widened(u32 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)bits));
    return x;
}
DEVICE float load_f16(const f16 *p, u32 i) { return widened(p[i].bits); }
DEVICE void store_f16(float x, f16 *p, u32 i) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    p[i].bits = bits;
}

#define load_u32(p, i) (*(const u32 *)((p) + (i)))
DEVICE float4 load4(const float *p, u32 i) { return *(const float4 *)(p + i); }
DEVICE float4 load4(const f16 *p, u32 i) {
    uint2 x = *(const uint2 *)(p + i);
    return F32X4(widened(x.x), widened(x.x >> 16), widened(x.y), widened(x.y >> 16));
}
DEVICE float4 load4(const bf16 *p, u32 i) {
    uint2 x = *(const uint2 *)(p + i);
    return F32X4(F32_BITS(x.x << 16), F32_BITS(x.x & 0xffff0000u), F32_BITS(x.y << 16), F32_BITS(x.y & 0xffff0000u));
}

DEVICE float divide(float x, float y) { return x / y; }

DEVICE u32 compare_and_swap(volatile u32 *p, u32 old, u32 new_) { return atomicCAS((u32 *)p, old, new_); }
