// Arithmetic over rows of logits, and the random numbers of the draws.
#ifndef TANDEM_LOGITS_H
#define TANDEM_LOGITS_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "bridge_internal.h"

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// likelier orders candidates: by logit, then by token, so that equal logits have
// one order on every machine.
inline bool likelier(const candidate & a, const candidate & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// max_value is -inf for an empty or NaN row.
float max_value(const float * x, size_t n);

// argmax is the first token with the highest logit, -1 if that is not finite.
int32_t argmax(const float * x, int32_t n);

// select_top puts the k likeliest tokens into out, likeliest first, without
// those of logit -inf.
void select_top(const float * x, int32_t n, size_t k, std::vector<candidate> & out);

// weigh sets w[i] = exp((x[i] - top) / temperature) and returns the sum.
double weigh(const float * x, int32_t n, float top, float temperature, float * w);

// draw_row picks an index by its weight; u is in [0, 1) and sum what weigh
// returned.
int32_t draw_row(const float * w, int32_t n, double sum, double u);

#endif
