#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>

#include "bridge_internal.h"
#include "logits.h"

struct td_sampler {
    td_sampling p{};
    std::vector<std::pair<int32_t, float>> bias;

    // The last repeat_last_n tokens with their counts.
    std::vector<int32_t> window;
    size_t window_next = 0;
    std::unordered_map<int32_t, int32_t> counts;

    // The choice that becomes final with the next position.
    int64_t pending_pos = -1;
    float mu = 0;      // of mirostat
    float next_mu = 0; // when the pending choice is final

    std::vector<std::pair<int32_t, float>> undo; // changed logits of the row
    std::vector<td_logprob> top;
    td_result result{}; // n_top is -1 without logprobs
};

namespace {

bool has_penalties(const td_sampling & p) {
    return p.repeat_last_n > 0 && (p.repeat_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f);
}

void remember(td_sampler & s, int32_t token) {
    if (!has_penalties(s.p)) {
        return;
    }
    if (s.window.size() < size_t(s.p.repeat_last_n)) {
        s.window.push_back(token);
    } else {
        auto old = s.counts.find(s.window[s.window_next]);
        if (--old->second == 0) {
            s.counts.erase(old);
        }
        s.window[s.window_next] = token;
        s.window_next = (s.window_next + 1) % s.window.size();
    }
    s.counts[token]++;
}

// row is the logits of one batch entry; changes are undone when it goes, since
// several sequences may be sampled from one row.
class row {
public:
    row(td_sampler & s, float * logits, int32_t n) : s_(s), x_(logits), n_(n) { s_.undo.clear(); }
    ~row() {
        for (auto u = s_.undo.rbegin(); u != s_.undo.rend(); ++u) {
            x_[u->first] = u->second;
        }
    }
    template <typename F> void change(int32_t token, F f) {
        if (token >= 0 && token < n_) {
            s_.undo.emplace_back(token, x_[token]);
            x_[token] = f(x_[token]);
        }
    }

private:
    row(const row &) = delete;
    row & operator=(const row &) = delete;
    td_sampler & s_;
    float * x_;
    int32_t n_;
};

void adjust(const td_model & m, td_sampler & s, row & r, bool may_end) {
    for (const auto & b : s.bias) {
        r.change(b.first, [&](float v) { return v + b.second; });
    }
    for (const auto & c : s.counts) {
        r.change(c.first, [&](float v) {
            v = v <= 0 ? v * s.p.repeat_penalty : v / s.p.repeat_penalty;
            return v - float(c.second) * s.p.frequency_penalty - s.p.presence_penalty;
        });
    }
    if (s.p.ignore_eos && !may_end) {
        for (int32_t t : m.eog) {
            r.change(t, [](float) { return minus_infinity; });
        }
    }
}

// shares turns sorted logits into probabilities that sum to 1 over all of c, or
// over everything if its weight at temperature 1 is given.
std::vector<double> shares(const std::vector<candidate> & c, double all) {
    std::vector<double> p(c.size());
    double sum = 0;
    for (size_t i = 0; i < c.size(); i++) {
        p[i] = std::exp(double(c[i].logit) - double(c[0].logit));
        sum += p[i];
    }
    for (double & v : p) {
        v /= all > 0 ? all : sum;
    }
    return p;
}

// keep_typical keeps the tokens whose surprise is nearest to the entropy.
void keep_typical(std::vector<candidate> & c, float typical) {
    std::vector<double> p = shares(c, 0);
    double entropy = 0;
    for (double v : p) {
        entropy -= v > 0 ? v * std::log(v) : 0;
    }
    std::vector<std::pair<double, size_t>> order(c.size());
    for (size_t i = 0; i < c.size(); i++) {
        order[i] = {std::fabs(-std::log(p[i]) - entropy), i};
    }
    std::sort(order.begin(), order.end());
    std::vector<candidate> kept;
    double sum = 0;
    for (const auto & o : order) {
        kept.push_back(c[o.second]);
        sum += p[o.second];
        if (sum > double(typical)) {
            break;
        }
    }
    std::sort(kept.begin(), kept.end(), likelier);
    c.swap(kept);
}

// keep_top_p keeps the likeliest tokens that together reach top_p; false if all
// of c do not.
bool keep_top_p(std::vector<candidate> & c, float top_p, double all) {
    std::vector<double> p = shares(c, all);
    double sum = 0;
    for (size_t i = 0; i < c.size(); i++) {
        sum += p[i];
        if (sum >= double(top_p)) {
            c.resize(i + 1);
            return true;
        }
    }
    return false;
}

// top_p_of_row is keep_top_p over the whole row, sorting no more of it than is
// needed.
void top_p_of_row(td_model & m, const float * x, float top_p) {
    double all = weigh(x, m.n_vocab, max_value(x, size_t(m.n_vocab)), 1, m.weights.data());
    for (size_t k = 128;; k *= 8) {
        select_top(x, m.n_vocab, k, m.candidates);
        if (keep_top_p(m.candidates, top_p, all) || m.candidates.size() < k) {
            return;
        }
    }
}

void keep_min_p(std::vector<candidate> & c, float min_p) {
    float least = c[0].logit + std::log(min_p);
    c.erase(std::remove_if(c.begin(), c.end(), [=](const candidate & k) { return k.logit < least; }), c.end());
}

void gather(td_model & m, const float * x, float least) {
    m.candidates.clear();
    for (int32_t t = 0; t < m.n_vocab; t++) {
        if (x[t] >= least && x[t] > minus_infinity) {
            m.candidates.push_back(candidate{t, x[t]});
        }
    }
}

// draw picks from c by weight; share becomes the chosen part of the whole.
int32_t draw(const std::vector<candidate> & c, float temperature, double u, double * share) {
    float top = minus_infinity;
    for (const auto & k : c) {
        top = std::max(top, k.logit);
    }
    auto weight = [&](const candidate & k) { return std::exp((double(k.logit) - double(top)) / double(temperature)); };
    double sum = 0;
    for (const auto & k : c) {
        sum += weight(k);
    }
    double target = u * sum, seen = 0;
    const candidate * chosen = nullptr;
    for (const auto & k : c) {
        double w = weight(k);
        if (w > 0) {
            chosen = &k;
            *share = w / sum;
            seen += w;
            if (target < seen) {
                break;
            }
        }
    }
    return chosen ? chosen->token : -1;
}

// mirostat_rank is how many of the likeliest tokens version 1 keeps, from the
// steepness of the likeliest hundred.
size_t mirostat_rank(td_model & m, const td_sampler & s, const float * x) {
    select_top(x, m.n_vocab, 100, m.candidates);
    const auto & c = m.candidates;
    double tb = 0, tt = 0;
    for (size_t i = 0; i + 1 < c.size(); i++) {
        double t = std::log(double(i + 2) / double(i + 1));
        double b = (double(c[i].logit) - double(c[i + 1].logit)) / double(s.p.temperature);
        tb += t * b;
        tt += t * t;
    }
    double steep = tb / tt, eps = steep - 1;
    double k = std::pow(eps * std::pow(2.0, double(s.mu)) / (1 - std::pow(double(m.n_vocab), -eps)), 1 / steep);
    return k >= 1 ? size_t(std::min(k, double(m.n_vocab))) : 1;
}

// mirostat steers the surprise of the choices to tau. Its state depends on the
// logits of all choices before, so a sequence that is continued elsewhere starts
// it anew.
int32_t mirostat(td_model & m, td_sampler & s, const float * x, float top, double u) {
    if (s.p.mirostat == 1) {
        select_top(x, m.n_vocab, mirostat_rank(m, s, x), m.candidates);
    } else {
        double all = weigh(x, m.n_vocab, top, s.p.temperature, m.weights.data());
        // -log2(w / all) <= mu, solved for the logit.
        double least = double(top) + double(s.p.temperature) * (std::log(all) - double(s.mu) * std::log(2.0));
        gather(m, x, std::min(top, float(least)));
    }
    double share = 1;
    int32_t t = draw(m.candidates, s.p.temperature, u, &share);
    s.next_mu = s.mu - s.p.mirostat_eta * (float(-std::log2(share)) - s.p.mirostat_tau);
    return t;
}

// filtered draws after top-k, typical, top-p and min-p, in this order.
int32_t filtered(td_model & m, td_sampler & s, const float * x, double u) {
    auto & c = m.candidates;
    bool nucleus = s.p.top_p < 1;
    if (s.p.top_k <= 0 && s.p.typical_p >= 1 && nucleus) {
        top_p_of_row(m, x, s.p.top_p);
        nucleus = false;
    } else {
        select_top(x, m.n_vocab, s.p.top_k > 0 ? size_t(s.p.top_k) : size_t(m.n_vocab), c);
    }
    if (s.p.typical_p < 1) {
        keep_typical(c, s.p.typical_p);
    }
    if (nucleus) {
        keep_top_p(c, s.p.top_p, 0);
    }
    if (s.p.min_p > 0) {
        keep_min_p(c, s.p.min_p);
    }
    double share = 1;
    return draw(c, s.p.temperature, u, &share);
}

// choose draws a token from logits x, -1 if none has a finite one.
int32_t choose(td_model & m, td_sampler & s, const float * x, double u) {
    if (s.p.temperature <= 0) {
        return argmax(x, m.n_vocab);
    }
    float top = max_value(x, size_t(m.n_vocab));
    if (!std::isfinite(top)) {
        return -1;
    }
    if (s.p.mirostat != 0) {
        return mirostat(m, s, x, top, u);
    }
    if (s.p.top_k > 0 || s.p.typical_p < 1 || s.p.top_p < 1) {
        return filtered(m, s, x, u);
    }
    if (s.p.min_p > 0) {
        double share = 1;
        gather(m, x, top + std::log(s.p.min_p));
        return draw(m.candidates, s.p.temperature, u, &share);
    }
    double sum = weigh(x, m.n_vocab, top, s.p.temperature, m.weights.data());
    return draw_row(m.weights.data(), m.n_vocab, sum, u);
}

// masked copies the row without what is not allowed.
const float * masked(td_model & m, const float * x, const uint64_t * allowed, int end) {
    std::fill(m.masked.begin(), m.masked.end(), minus_infinity);
    for (int32_t base = 0; base < m.n_vocab; base += 64) {
        uint64_t bits = allowed[base / 64];
        int32_t n = bits == 0 ? 0 : std::min(64, m.n_vocab - base);
        for (int32_t i = 0; i < n; i++) {
            m.masked[size_t(base + i)] = (bits >> i) & 1 ? x[base + i] : minus_infinity;
        }
    }
    if (end & TD_END) {
        for (int32_t t : m.eog) {
            m.masked[size_t(t)] = x[t];
        }
    }
    return m.masked.data();
}

int32_t pick(td_model & m, td_sampler & s, float * logits, int64_t pos, const uint64_t * allowed, int end) {
    row r(s, logits, m.n_vocab);
    adjust(m, s, r, end & TD_ONLY_END);
    if (!allowed) {
        return choose(m, s, logits, td_uniform(s.p.seed, uint64_t(pos), 0));
    }
    // A second number: once the first choice is refused, the first number is no
    // longer equally distributed.
    return choose(m, s, masked(m, logits, allowed, end), td_uniform(s.p.seed, uint64_t(pos), 1));
}

void add_logprobs(td_model & m, td_sampler & s, const float * logits) {
    float top = max_value(logits, size_t(m.n_vocab));
    double norm = double(top) + std::log(weigh(logits, m.n_vocab, top, 1, m.weights.data()));
    select_top(logits, m.n_vocab, size_t(s.p.top_logprobs), m.candidates);
    s.top.clear();
    for (const auto & c : m.candidates) {
        s.top.push_back(td_logprob{c.token, float(double(c.logit) - norm)});
    }
    s.result.logprob = float(double(logits[s.result.token]) - norm);
    s.result.n_top = int32_t(s.top.size());
    s.result.top = s.top.data();
}

// settle makes the pending choice final.
void settle(td_sampler & s, int64_t pos) {
    if (s.pending_pos >= 0 && s.pending_pos != pos) {
        remember(s, s.result.token);
        s.mu = s.next_mu;
        s.pending_pos = -1;
    }
}

} // namespace

extern "C" td_sampler * td_sampler_new(const td_sampling * p, const int32_t * bias_tokens, const float * bias, size_t n_bias, td_error * err) {
    return guarded(err, static_cast<td_sampler *>(nullptr), [&]() -> td_sampler * {
        auto s = std::make_unique<td_sampler>();
        s->p = *p;
        for (size_t i = 0; i < n_bias; i++) {
            s->bias.emplace_back(bias_tokens[i], bias[i]);
        }
        s->mu = s->next_mu = 2 * p->mirostat_tau;
        s->result.n_top = -1;
        return s.release();
    });
}

extern "C" int td_sampler_accept(td_sampler * s, const int32_t * tokens, size_t n, td_error * err) {
    return guarded(err, int(TD_FAILED), [&]() -> int {
        for (size_t i = 0; i < n; i++) {
            remember(*s, tokens[i]);
        }
        return TD_OK;
    });
}

extern "C" const td_result * td_sampler_result(td_sampler * s) { return &s->result; }

extern "C" void td_sampler_free(td_sampler * s) { delete s; }

extern "C" int td_sample(td_model * m, td_sampler * s, int32_t i, int64_t pos, const uint64_t * allowed, int end, td_error * err) {
    return guarded(err, int(TD_FAILED), [&]() -> int {
        log_capture log;
        float * logits = llama_get_logits_ith(m->ctx, i);
        settle(*s, pos);
        int32_t t = logits ? pick(*m, *s, logits, pos, allowed, end) : -1;
        if (t < 0) {
            throw std::runtime_error(allowed ? "no token continues the text" : "no token has a finite logit");
        }
        s->result.token = t;
        s->pending_pos = pos;
        if (s->p.top_logprobs >= 0) {
            add_logprobs(*m, *s, logits);
        }
        return TD_OK;
    });
}
