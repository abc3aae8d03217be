#include "logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

// Sums of a row run in this many lanes, which lets the compiler use vectors
// although it must not reorder floating point.
constexpr size_t lanes = 32;

// Exponents are cut off here: 2^n for the n of this one has no normal number, and
// exp_negative makes 0 of it.
constexpr float exponent_min = -88.0f;

// exp_negative is e^x for exponent_min <= x <= 0, to about 2e-7 of it. It has no
// branches and no calls, for the vectoriser.
inline float exp_negative(float x) {
    constexpr float round = 12582912.0f; // 1.5 * 2^23
    float n = (x * 1.44269504f + round) - round;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (int32_t(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

double sum_of(const float * w, size_t n) {
    double s[8] = {};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            s[j] += double(w[i + j]);
        }
    }
    double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    for (; i < n; i++) {
        sum += double(w[i]);
    }
    return sum;
}

} // namespace

float max_value(const float * x, size_t n) {
    float m[lanes];
    std::fill(m, m + lanes, minus_infinity);
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (size_t j = 0; j < lanes; j++) {
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
        }
    }
    float best = minus_infinity;
    for (float v : m) {
        best = v > best ? v : best;
    }
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

int32_t argmax(const float * x, int32_t n) {
    float best = max_value(x, size_t(n));
    return std::isfinite(best) ? int32_t(std::find(x, x + n, best) - x) : -1;
}

void select_top(const float * x, int32_t n, size_t k, std::vector<candidate> & out) {
    out.clear();
    // A heap with the unlikeliest of the chosen in front.
    for (int32_t i = 0; i < n && k > 0; i += int32_t(lanes)) {
        int32_t end = std::min(n, i + int32_t(lanes));
        if (out.size() == k && max_value(x + i, size_t(end - i)) <= out.front().logit) {
            continue;
        }
        for (int32_t t = i; t < end; t++) {
            candidate c{t, x[t]};
            if (!(c.logit > minus_infinity)) {
                continue;
            }
            if (out.size() == k) {
                if (!likelier(c, out.front())) {
                    continue;
                }
                std::pop_heap(out.begin(), out.end(), likelier);
                out.pop_back();
            }
            out.push_back(c);
            std::push_heap(out.begin(), out.end(), likelier);
        }
    }
    std::sort_heap(out.begin(), out.end(), likelier);
}

double weigh(const float * x, int32_t n, float top, float temperature, float * w) {
    float scale = 1.0f / temperature;
    // Two loops, because in one the compiler would branch on the cut.
    for (int32_t i = 0; i < n; i++) {
        float v = (x[i] - top) * scale;
        w[i] = v > exponent_min ? v : exponent_min;
    }
    for (int32_t i = 0; i < n; i++) {
        w[i] = exp_negative(w[i]);
    }
    return sum_of(w, size_t(n));
}

int32_t draw_row(const float * w, int32_t n, double sum, double u) {
    constexpr int32_t block = 256;
    double target = u * sum, seen = 0;
    int32_t last = -1;
    for (int32_t i = 0; i < n; i += block) {
        int32_t end = std::min(n, i + block);
        double here = sum_of(w + i, size_t(end - i));
        if (target >= seen + here && end < n) {
            seen += here;
            continue;
        }
        for (int32_t t = i; t < end; t++) {
            if (w[t] > 0) {
                last = t;
                seen += double(w[t]);
                if (target < seen) {
                    return t;
                }
            }
        }
    }
    if (last >= 0) {
        return last;
    }
    // Rounding left the target behind the last weight.
    for (int32_t t = n - 1; t >= 0; t--) {
        if (w[t] > 0) {
            return t;
        }
    }
    return -1;
}

// Philox4x32-10 with the seed as key and (pos, draw) as counter, cut to 53 bits.
extern "C" double td_uniform(uint64_t seed, uint64_t pos, uint32_t draw) {
    uint32_t c[4] = {uint32_t(pos), uint32_t(pos >> 32), draw, 0};
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = uint64_t(0xD2511F53u) * c[0];
        uint64_t b = uint64_t(0xCD9E8D57u) * c[2];
        uint32_t n[4] = {uint32_t(b >> 32) ^ c[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k1, uint32_t(a)};
        std::copy(n, n + 4, c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return double((uint64_t(c[1]) << 32 | c[0]) >> 11) * 0x1.0p-53;
}
