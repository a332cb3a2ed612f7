/* The language of portable kernels, for OpenCL C 1.2. portable.rs explains the names. */
#define KERNEL __kernel
#define GROUP_SIZE(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#define DEVICE static inline
#define GLOBAL __global
#define LOCAL __local
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define GLOBAL_ID(d) get_global_id(d)
#define LOCAL_ID(d) get_local_id(d)
#define GROUP_ID(d) get_group_id(d)
#define GROUPS(d) get_num_groups(d)

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

DEVICE float load_f16(GLOBAL const f16 *p, size_t i) { return vload_half(i, p); }
DEVICE void store_f16(float x, GLOBAL f16 *p, size_t i) { vstore_half_rte(x, i, p); }

/* In OpenCL `/` may be wrong by 2.5 units in the last place (OpenCL 1.2, section 7.4); the
   remainder gives the correction. */
DEVICE float divide(float x, float y) {
    float q = x / y;
    float rest = fma(-q, y, x);
    return isfinite(rest) && rest != 0.0f ? q + rest / y : q;
}

DEVICE u32 compare_and_swap(volatile GLOBAL u32 *p, u32 old, u32 new_) { return atomic_cmpxchg(p, old, new_); }
