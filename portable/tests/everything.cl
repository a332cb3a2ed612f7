/* Every statement, operator, type and function of the language, for the validator alone: nothing runs this. */
#ifndef SIDE
#error SIDE is to be defined
#elif SIDE == 8 && defined(SIDE) && !defined NOTHING
#define ITEMS (SIDE * SIDE)
#else
#define ITEMS 1
#endif
#define JOIN(a, b) a##b
#define EACH(i, count) for (u32 i = 0; i < count; i++)

DEVICE float half_of(float x) { return x * 0.5f; }

DEVICE u32 first_bit(u32 bits) {
    for (u32 i = 0; i < 32; i++)
        if ((bits >> i & 1) != 0) return i;
    return 32;
}

DEVICE void gather(float *to, GLOBAL const float *from, u32 at) {
    float4 v = load4(from, at);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

DEVICE float total(float *of, u32 count) {
    float sum = 0;
    for (u32 i = 0; i < count; i++) sum += of[i];
    return sum;
}

KERNEL GROUP_SIZE(SIDE, SIDE, 1)
void tiled(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *y, u32 n, float scale, i32 shift) {
    LOCAL float left[SIDE][SIDE + 4] ALIGNED;
    LOCAL float right[ITEMS];
    u32 x = LOCAL_ID(0), row = LOCAL_ID(1), item = row * SIDE + x;
    float sums[2][2], JOIN(ta, il)[8];
    EACH(i, 2)
    EACH(j, 2) sums[i][j] = 0;
    for (u32 at = 0; at < n; at += SIDE) {
        left[row][x] = at + x < n && GROUP_ID(1) * SIDE + row < n ? a[(GROUP_ID(1) * SIDE + row) * n + at + x] : 0.0f;
        right[item] = b[at + item];
        BARRIER();
        _Pragma("unroll 4") for (u32 d = 0; d < SIDE; d++) {
            if (d == 3) {
                sums[0][1] += left[row][d];
            } else {
                sums[0][0] += left[row][d] * right[d * SIDE + x];
            }
        }
        BARRIER();
    }
    gather(tail, a + n * 4, 0);
    gather(tail + 4, a, n * 4);
    sums[1][1] = total(tail, 8) + half_of(scale);
    float4 v = F32X4(sums[0][0], sums[0][1], sums[1][0], sums[1][1]);
    v.x += 1;
    i32 bits = ~(i32)BITS_F32(v.x) ^ shift;
    bool odd = (bits & 1) != 0 || (bits >> 3) % 2 == 1;
    if (!odd) bits = -bits;
    y[GLOBAL_ID(1) * n + GLOBAL_ID(0)] = v.x + v.w + (odd ? 1 : 0.5f) + F32_BITS((u32)bits) + (float)first_bit(n | 1u << 4);
}

KERNEL void halves(GLOBAL const f16 *a, GLOBAL const bf16 *b, GLOBAL f16 *y, GLOBAL bf16 *z) {
    u32 i = GLOBAL_ID(0);
    store_f16(load_f16(a, i) + load_bf16(b, i), y, i);
    store_bf16(load_f16(a, i) - load_bf16(b, i), z, i);
}

KERNEL void packed(GLOBAL const f16 *a, GLOBAL const bf16 *b, GLOBAL const i8 *c, GLOBAL const u16 *d, GLOBAL float *y) {
    u32 i = GLOBAL_ID(0) * 4;
    float4 u = load4(a, i), v = load4(b, i);
    u32 w = load_u32(c, i) + load_u32(d, i);
    y[i] = u.x + v.y + (float)(i8)(w >> 8);
}

KERNEL void bytes(GLOBAL const u8 *a, GLOBAL const i8 *b, GLOBAL i8 *y) {
    u32 i = GLOBAL_ID(0);
    u8 small = (u8)(a[i] + 300);
    small += 7;
    y[i] = (i8)(small * b[i] - 1);
}

KERNEL void long_words(GLOBAL const i64 *a, GLOBAL u64 *y, u64 n) {
    u32 i = GLOBAL_ID(0);
    i64 value = a[i] < 0 ? a[i] + (i64)n : a[i];
    y[i] = (u64)value % n + (u64)(float)value + 0x123456789abull;
}

KERNEL void small_words(GLOBAL const i16 *a, GLOBAL i16 *y) {
    LOCAL i16 stage[64];
    LOCAL u8 marks[64];
    u32 i = LOCAL_ID(0) % 64;
    stage[i] = a[GLOBAL_ID(0)];
    marks[i] = (u8)i;
    BARRIER();
    y[GLOBAL_ID(0)] = (i16)(stage[63 - i] * marks[i]);
}

KERNEL void loops(GLOBAL u32 *y, GLOBAL u32 *last) {
    volatile GLOBAL u32 *own = last + GLOBAL_ID(0);
    u32 seen = 0, old, count = GROUPS(0);
    do {
        old = seen;
        seen = compare_and_swap(own, old, count + 1);
    } while (seen != old && seen < count + 1);
    while (true) {
        if (count == 0) break;
        count--;
        if (count % 3 == 0) continue;
        --count, seen ^= count;
    }
    for (;;) {
        if (seen > 7) return;
        seen++;
        {
            u32 seen = 1;
            y[0] = seen << 2;
        }
        ;
    }
}

KERNEL void mathematics(GLOBAL const float *x, GLOBAL float *y) {
    u32 i = GLOBAL_ID(0);
    float a = x[i], b = x[i + 1];
    float s = exp(a) + expm1(a) + log(a) + log10(a) + log1p(a) + sqrt(a) + fabs(a) + floor(a) + ceil(a) + trunc(a) + rint(a);
    s += round(a) + sin(a) + cos(a) + tan(a) + asin(a) + acos(a) + atan(a) + sinh(a) + cosh(a) + tanh(a) + asinh(a);
    s += acosh(a) + atanh(a) + erf(a) + sign(a) + pow(a, b) + fmod(a, b) + fmin(a, b) + fmax(a, b) + copysign(a, b);
    s += divide(a, b) + fma(a, b, s);
    s = isnan(s) || isinf(s) || !isfinite(s) ? NAN : s;
    y[i] = s == -INFINITY ? 0.0f : s;
}

KERNEL void never_reached(GLOBAL u32 *y, u32 n) {
    for (u32 i = 0; i < n; i++) {
        if (1 < 2) break;
        if (n > 3) y[i] = n > 4 && y[i] > 5 ? 1 : y[0];
        while (n > 5) y[i] = 2;
    }
    for (u32 i = 0; i < n; i++) {
        if (n > i) {
            continue;
        } else {
            break;
        }
        y[i] = 3;
    }
    for (u32 i = 0; i < n; i++) {
        for (;;) {
            if (y[i] > 4) return;
            y[i]++;
        }
        y[i] = 5;
    }
    do {
        n--;
    } while (y[n] > 6 && y[n + 1] < 7);
}
