/* The language of portable kernels, for OpenCL C 1.2. portable.rs explains the names. */
#define KERNEL __kernel
#define GROUP_SIZE(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#define DEVICE static inline
#define GLOBAL __global
#define LOCAL __local
#define ALIGNED __attribute__((aligned(16)))
#define UNROLL _Pragma("unroll")
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
/* Of 64 bits, an index into local memory would hide from Mesa's compiler that neighbours lie together. */
#define GLOBAL_ID(d) ((u32)get_global_id(d))
#define LOCAL_ID(d) ((u32)get_local_id(d))
#define GROUP_ID(d) ((u32)get_group_id(d))
#define GROUPS(d) ((u32)get_num_groups(d))

typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
/* Stored only: load_f16 and store_f16 convert. */
typedef half f16;
typedef ushort bf16;

#define BITS_F32(x) as_uint(x)
#define F32_BITS(x) as_float(x)
#define F32X4(a, b, c, d) ((float4)((a), (b), (c), (d)))

DEVICE float load_f16(GLOBAL const f16 *p, u32 i) { return vload_half(i, p); }
DEVICE void store_f16(float x, GLOBAL f16 *p, u32 i) { vstore_half_rte(x, i, p); }

#define load_u32(p, i) (*(GLOBAL const u32 *)((p) + (i)))
DEVICE float4 __attribute__((overloadable)) load4(GLOBAL const float *p, u32 i) {
    return *(GLOBAL const float4 *)(p + i);
}
DEVICE float4 __attribute__((overloadable)) load4(GLOBAL const f16 *p, u32 i) { return vloada_half4(0, p + i); }
DEVICE float4 __attribute__((overloadable)) load4(GLOBAL const bf16 *p, u32 i) {
    return as_float4(convert_uint4(*(GLOBAL const ushort4 *)(p + i)) << 16);
}

/* In OpenCL `/` may be wrong by 2.5 units in the last place (OpenCL 1.2, section 7.4); the
   remainder gives the correction. */
DEVICE float divide(float x, float y) {
    float q = x / y;
    float rest = fma(-q, y, x);
    return isfinite(rest) && rest != 0.0f ? q + rest / y : q;
}

/* OpenCL's own may be wrong by 16 units in the last place, and takes so many instructions that loops around it are not
   written out. Below 0.9 a polynomial; above it the complement's logarithm is one. */
DEVICE float short_erf(float x) {
    float a = fabs(x), z = x * x, t = fmin(a, 4.0f);
    float p = 8.538839e-05f;
    p = p * z - 0.0008181927f;
    p = p * z + 0.005204436f;
    p = p * z - 0.026860753f;
    p = p * z + 0.112837195f;
    p = p * z - 0.37612635f;
    float q = 1.8337815e-08f;
    q = q * t - 2.0156144e-06f;
    q = q * t + 4.9396353e-05f;
    q = q * t - 0.000613213f;
    q = q * t + 0.004808655f;
    q = q * t - 0.026512396f;
    q = q * t + 0.110183224f;
    q = q * t + 0.631761f;
    q = q * t + 1.1302515f;
    q = q * t - 0.0003206451f;
    float far_ = copysign(1.0f - exp(-q), x);
    return a < 0.9f ? x * 1.1283791670955126f + x * z * p : x != x ? x : far_;
}
#define erf short_erf

DEVICE u32 compare_and_swap(volatile GLOBAL u32 *p, u32 old, u32 new_) { return atomic_cmpxchg(p, old, new_); }
