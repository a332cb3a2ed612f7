/* Functions of the language that no instruction of SPIR-V computes with C's accuracy. Each is a polynomial on a short
   interval, fitted to the least largest error there, and the steps that lead to the interval. A name that ends in an
   underscore is the library's own. */

DEVICE u32 rounded_bf16_(float x) {
    u32 bits = BITS_F32(x);
    u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (x != x ? bits | 0x400000 : rounded) >> 16;
}

DEVICE bool isfinite(float x) { return fabs(x) < INFINITY; }

DEVICE float copysign(float x, float y) {
    return F32_BITS((BITS_F32(x) & 0x7fffffff) | (BITS_F32(y) & 0x80000000));
}

DEVICE float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f; }

/* Halves go away from zero. */
DEVICE float round(float x) {
    float whole = trunc(x);
    return fabs(x - whole) >= 0.5f ? whole + copysign(1.0f, x) : whole;
}

/* The upper half of a float's digits: products of two such halves are exact. */
DEVICE float upper_(float x) { return F32_BITS(BITS_F32(x) & 0xfffff000); }

/* What a · b lacks of the exact product. */
DEVICE float product_rest_(float a, float b, float product) {
    float a1 = upper_(a), b1 = upper_(b), a2 = a - a1, b2 = b - b1;
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
}

/* The quotient rounded to nearest: Vulkan allows 2.5 units in the last place (Vulkan, precision of operations). */
DEVICE float divide(float x, float y) {
    float q = x / y, product = q * y;
    float rest = (x - product) - product_rest_(q, y, product);
    return isfinite(rest) && rest != 0.0f ? q + rest / y : q;
}

/* x · 2^n for n from -252 to 254, in two steps because a single factor may be no float. */
DEVICE float scaled_(float x, i32 n) {
    i32 half_ = n >> 1;
    return x * F32_BITS((u32)(half_ + 127) << 23) * F32_BITS((u32)(n - half_ + 127) << 23);
}

/* exp(r) - 1 - r for |r| up to ln(2) / 2. */
DEVICE float exp_tail_(float r) {
    float p = 0.00019899308f;
    p = p * r + 0.00139262f;
    p = p * r + 0.008333301f;
    p = p * r + 0.041666556f;
    p = p * r + 0.16666667f;
    return r * r * (p * r + 0.5f);
}

DEVICE float exp(float x) {
    float n = rint(fmin(fmax(x, -110.0f), 100.0f) * 1.4426950408889634f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = scaled_(1.0f + (r + exp_tail_(r)), (i32)n);
    return x > 89.0f ? INFINITY : x < -104.0f ? 0.0f : x != x ? x : y;
}

DEVICE float expm1(float x) { return fabs(x) < 0.34f ? x + exp_tail_(x) : exp(x) - 1.0f; }

DEVICE float log(float x) {
    bool small = x < 1.17549435e-38f;
    u32 bits = BITS_F32(small ? x * 8388608.0f : x);
    /* The factor of a power of two that lies between the roots of 1/2 and 2. */
    i32 power = (i32)(bits - 0x3f3504f3u) >> 23;
    float n = (float)power - (small ? 23.0f : 0.0f);
    float f = F32_BITS(bits - ((u32)power << 23)) - 1.0f;
    float p = 0.06746601f;
    p = p * f - 0.11675641f;
    p = p * f + 0.11888175f;
    p = p * f - 0.124055915f;
    p = p * f + 0.14219551f;
    p = p * f - 0.16667996f;
    p = p * f + 0.20002119f;
    p = p * f - 0.2500001f;
    p = p * f + 0.33333313f;
    float y = n * 0.693359375f + (f + (f * f * (p * f - 0.5f) - n * 2.12194440e-4f));
    return x == 0.0f ? -INFINITY : x < 0.0f ? NAN : x < INFINITY ? y : x;
}

DEVICE float log10(float x) { return log(x) * 0.4342944819032518f; }

/* The rounding of 1 + x is known exactly, and corrected for (W. Kahan). */
DEVICE float log1p(float x) {
    float u = 1.0f + x;
    return u == 1.0f || x == INFINITY ? x : log(u) * (x / (u - 1.0f));
}

DEVICE float tanh(float x) {
    float e = expm1(2.0f * fmin(fabs(x), 10.0f));
    return x != x ? x : copysign(e / (e + 2.0f), x);
}

DEVICE float sinh(float x) {
    float a = fabs(x), e = expm1(a), half_ = exp(0.5f * a);
    float y = a < 80.0f ? 0.5f * (e + e / (e + 1.0f)) : 0.5f * half_ * half_;
    return x != x ? x : copysign(y, x);
}

DEVICE float cosh(float x) {
    float a = fabs(x), e = exp(a), half_ = exp(0.5f * a);
    return a < 80.0f ? 0.5f * (e + 1.0f / e) : 0.5f * half_ * half_;
}

DEVICE float asinh(float x) {
    float a = fabs(x);
    float y = a < 1e9f ? log1p(a + a * a / (1.0f + sqrt(a * a + 1.0f))) : log(a) + 0.6931471805599453f;
    return x != x ? x : copysign(y, x);
}

DEVICE float acosh(float x) {
    float t = x - 1.0f;
    return x < 1e9f ? log1p(t + sqrt(2.0f * t + t * t)) : log(x) + 0.6931471805599453f;
}

DEVICE float atanh(float x) {
    float a = fabs(x);
    float y = 0.5f * log1p(2.0f * a / (1.0f - a));
    return x != x ? x : copysign(y, x);
}

/* The quarter turns in x. What is left is accurate for |x| below 100,000: each product with one of the first three
   parts of a quarter turn is exact up to there. */
DEVICE float quarters_(float x) { return rint(x * 0.6366197723675814f); }
DEVICE float turned_(float x, float n) {
    return (((x - n * 1.5703125f) - n * 4.825592041015625e-4f) - n * 1.2665987014770508e-6f) - n * 9.920936e-10f;
}

DEVICE float sin_near_(float r) {
    float z = r * r;
    float p = 3.0589117e-06f;
    p = p * z - 0.00019871068f;
    p = p * z + 0.008333404f;
    p = p * z - 0.16666667f;
    return r + r * z * p;
}

DEVICE float cos_near_(float r) {
    float z = r * r;
    float p = 8.276431e-08f;
    p = p * z + 2.448978e-05f;
    p = p * z - 0.0013888265f;
    p = p * z + 0.041666668f;
    return 1.0f - 0.5f * z + z * z * p;
}

/* The sine or cosine of a whole number of quarter turns and a rest. */
DEVICE float wave_(float r, i32 quarter) {
    float y = (quarter & 1) == 0 ? sin_near_(r) : cos_near_(r);
    return (quarter & 2) == 0 ? y : -y;
}

DEVICE float sin(float x) {
    float n = quarters_(x);
    return fabs(x) < INFINITY ? wave_(turned_(x, n), (i32)fmin(fmax(n, -1e9f), 1e9f)) : NAN;
}

DEVICE float cos(float x) {
    float n = quarters_(x);
    return fabs(x) < INFINITY ? wave_(turned_(x, n), (i32)fmin(fmax(n, -1e9f), 1e9f) + 1) : NAN;
}

DEVICE float tan(float x) { return sin(x) / cos(x); }

DEVICE float atan(float x) {
    float a = fabs(x);
    float start = a > 2.4142135f ? 1.5707963267948966f : a > 0.41421357f ? 0.7853981633974483f : 0.0f;
    float t = a > 2.4142135f ? -1.0f / a : a > 0.41421357f ? (a - 1.0f) / (a + 1.0f) : a;
    float z = t * t;
    float p = -0.07592743f;
    p = p * z + 0.11144423f;
    p = p * z - 0.14308393f;
    p = p * z + 0.20001149f;
    p = p * z - 0.3333334f;
    return x != x ? x : copysign(start + (t + t * z * p), x);
}

/* The arc sine of a from 0 to 1/2. */
DEVICE float asin_near_(float a) {
    float z = a * a;
    float p = 0.048792083f;
    p = p * z + 0.007828635f;
    p = p * z + 0.033107817f;
    p = p * z + 0.044423725f;
    p = p * z + 0.0750063f;
    p = p * z + 0.16666664f;
    return a + a * z * p;
}

DEVICE float asin(float x) {
    float a = fabs(x);
    float y = a <= 0.5f ? asin_near_(a) : 1.5707963267948966f - 2.0f * asin_near_(sqrt(0.5f * (1.0f - a)));
    return a <= 1.0f ? copysign(y, x) : NAN;
}

DEVICE float acos(float x) {
    float a = fabs(x), far_ = 2.0f * asin_near_(sqrt(0.5f * (1.0f - a)));
    float y = x > 0.5f ? far_ : x < -0.5f ? 3.141592653589793f - far_ : 1.5707963267948966f - copysign(asin_near_(a), x);
    return a <= 1.0f ? y : NAN;
}

DEVICE float erf(float x) {
    float a = fabs(x);
    if (a < 0.9f) {
        float z = x * x;
        float p = 8.538839e-05f;
        p = p * z - 0.0008181927f;
        p = p * z + 0.005204436f;
        p = p * z - 0.026860753f;
        p = p * z + 0.112837195f;
        p = p * z - 0.37612635f;
        return x * 1.1283791670955126f + x * z * p;
    }
    /* The complement's logarithm is smooth. */
    float t = fmin(a, 4.0f);
    float p = 1.8337815e-08f;
    p = p * t - 2.0156144e-06f;
    p = p * t + 4.9396353e-05f;
    p = p * t - 0.000613213f;
    p = p * t + 0.004808655f;
    p = p * t - 0.026512396f;
    p = p * t + 0.110183224f;
    p = p * t + 0.631761f;
    p = p * t + 1.1302515f;
    p = p * t - 0.0003206451f;
    return x != x ? x : copysign(1.0f - exp(-p), x);
}

/* The remainder of x / y with the sign of x, exact: what is left after y times powers of two are taken from x. */
DEVICE float fmod(float x, float y) {
    float rest = fabs(x), by = fabs(y);
    if (!(rest < INFINITY) || !(by > 0.0f)) return NAN;
    if (by == INFINITY) return x;
    float part = by;
    while (part <= rest * 0.5f) part *= 2.0f;
    while (part >= by) {
        if (rest >= part) rest -= part;
        part *= 0.5f;
    }
    return copysign(rest, x);
}

/* 2^(y · log2(x)) for x above 0, with twice a float's digits up to the last step. */
DEVICE float power_(float x, float y) {
    bool small = x < 1.17549435e-38f;
    u32 bits = BITS_F32(small ? x * 8388608.0f : x);
    i32 power = (i32)(bits - 0x3f3504f3u) >> 23;
    float n = (float)power - (small ? 23.0f : 0.0f);
    float m = F32_BITS(bits - ((u32)power << 23));
    /* log2(m) is 2 / ln(2) times the area tangent of t = (m - 1) / (m + 1). */
    float top = m - 1.0f, bottom = m + 1.0f, bottom2 = m - (bottom - 1.0f);
    float t = top / bottom, product = t * bottom;
    float t2 = (((top - product) - product_rest_(t, bottom, product)) - t * bottom2) / bottom;
    float z = t * t;
    float p = 0.11666321f;
    p = p * z + 0.14275363f;
    p = p * z + 0.20000061f;
    p = p * z + 0.33333334f;
    t2 += t * z * p;
    float first = t * 2.885390043258667f;
    float rest = product_rest_(t, 2.885390043258667f, first) + t2 * 2.885390043258667f + t * 3.851925e-8f;
    float high = first + rest, sum = n + high;
    float low = ((n - sum) + high) + ((first - high) + rest);
    /* Times y. */
    float to = sum * y;
    float to2 = product_rest_(sum, y, to) + low * y;
    if (!(to > -160.0f)) return to != to ? to : 0.0f;
    if (to > 130.0f) return INFINITY;
    float whole = rint(to);
    float f = (to - whole) + to2;
    float q = 0.00015469757f;
    q = q * f + 0.001339089f;
    q = q * f + 0.009618031f;
    q = q * f + 0.05550357f;
    q = q * f + 0.2402265f;
    q = q * f + 0.6931472f;
    return scaled_(1.0f + f * q, (i32)whole);
}

DEVICE float pow(float x, float y) {
    float a = fabs(x);
    if (y == 0.0f || x == 1.0f) return 1.0f;
    if (x != x || y != y) return NAN;
    bool whole = rint(y) == y;
    bool odd = whole && rint(0.5f * y) != 0.5f * y;
    if (fabs(y) == INFINITY) {
        return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? INFINITY : 0.0f;
    }
    float magnitude = 0.0f;
    if (a == 0.0f) {
        magnitude = y > 0.0f ? 0.0f : INFINITY;
    } else if (a == INFINITY) {
        magnitude = y > 0.0f ? INFINITY : 0.0f;
    } else if (x < 0.0f && !whole) {
        return NAN;
    } else {
        magnitude = power_(a, y);
    }
    return odd ? copysign(magnitude, x) : magnitude;
}
