#include <algorithm>
#include <memory>
#include <cstdlib>
#include <cstring>

#include "bridge_internal.h"
#include "stopwatch.h"

extern "C" bool goProgress(uintptr_t handle, float progress);

td_model::~td_model() {
    thread.reset();
    if (ctx) {
        llama_free(ctx);
    }
    if (pool) {
        ggml_threadpool_free(pool);
    }
    if (model) {
        llama_model_free(model);
    }
}

namespace {

struct progress_state {
    uintptr_t handle;
    bool refused;
};

bool on_progress(float progress, void * user_data) {
    auto * p = static_cast<progress_state *>(user_data);
    if (!goProgress(p->handle, progress)) {
        p->refused = true;
    }
    return !p->refused;
}

std::string metadata(const llama_model * m, const std::string & key) {
    char buf[256];
    int32_t n = llama_model_meta_val_str(m, key.c_str(), buf, sizeof buf);
    return n < 0 ? std::string() : std::string(buf);
}

// load_weights returns NULL if progress was refused.
llama_model * load_weights(const td_options & o) {
    log_capture log;
    progress_state progress{o.progress, false};
    llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = o.gpu_layers < 0 ? 999 : o.gpu_layers;
    p.progress_callback = on_progress;
    p.progress_callback_user_data = &progress;
    llama_model * m = llama_model_load_from_file(o.path, p);
    if (!m && !progress.refused) {
        throw std::runtime_error(log.text("the model could not be loaded"));
    }
    return m;
}

std::string metadata_of_arch(const llama_model * m, const char * key) {
    return metadata(m, metadata(m, "general.architecture") + "." + key);
}

bool is_causal(const llama_model * m) { return metadata_of_arch(m, "attention.causal") != "false"; }

int declared_pooling(const llama_model * m) {
    std::string v = metadata_of_arch(m, "pooling_type");
    return v.empty() ? int(LLAMA_POOLING_TYPE_UNSPECIFIED) : std::atoi(v.c_str());
}

// only_embeds tells models that are made for embeddings.
bool only_embeds(const llama_model * m) {
    return !is_causal(m) || declared_pooling(m) > LLAMA_POOLING_TYPE_NONE || !llama_model_has_decoder(m);
}

// check_heads refuses what would be an assertion: rows of the cache are made of
// whole blocks, also within one head.
void check_heads(const llama_model * m, const td_options & o) {
    if (o.kv_type == GGML_TYPE_F16) {
        return;
    }
    constexpr int block = 32;
    int heads = std::atoi(metadata_of_arch(m, "attention.head_count").c_str());
    int fallback = heads > 0 ? llama_model_n_embd(m) / heads : block;
    for (const char * key : {"attention.key_length", "attention.value_length"}) {
        int n = std::atoi(metadata_of_arch(m, key).c_str());
        n = n > 0 ? n : fallback;
        if (n % block != 0) {
            throw std::runtime_error("a quantised KV cache needs heads of a multiple of 32 values, this model's have " + std::to_string(n) + "; use f16");
        }
    }
}

// fixed_positions tells models that have learned a vector for each position: one
// that they have not is an index out of range.
bool fixed_positions(const llama_model * m) {
    std::string arch = metadata(m, "general.architecture");
    return arch == "bert" || arch == "gpt2" || arch == "starcoder" || arch == "mpt";
}

// Texts of models that need a whole text in one batch may have as many tokens.
constexpr uint32_t whole_batch_min = 2048;

// Buffers for logits grow with the tokens that are computed at once.
constexpr uint32_t piece_max = 512;

// context_params has flash attention on for everything that keeps KV: without it
// V is stored transposed, and quantised types do not work.
llama_context_params context_params(const llama_model * m, const td_options & o) {
    llama_context_params p = llama_context_default_params();
    uint32_t trained = uint32_t(std::max(llama_model_n_ctx_train(m), 1));
    uint32_t context = o.context && !(fixed_positions(m) && o.context > trained) ? o.context : trained;
    // Texts to embed are computed together in one batch of unlike lengths; what
    // generates has a stream of rows for each sequence.
    uint64_t cells = uint64_t(context) * (o.embeddings ? 1 : o.sequences);
    if (cells > INT32_MAX) {
        throw std::runtime_error("the KV cache would have " + std::to_string(cells) + " cells, at most 2147483647 are possible");
    }
    p.n_ctx = uint32_t(cells);
    p.n_seq_max = o.sequences;
    p.n_batch = o.batch;
    p.n_ubatch = o.micro_batch;
    p.n_threads = p.n_threads_batch = o.threads;
    p.type_k = p.type_v = ggml_type(o.kv_type);
    p.kv_unified = o.embeddings;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    p.embeddings = o.embeddings;
    if (!o.embeddings) {
        return p;
    }
    int pooling = declared_pooling(m);
    if (is_causal(m) && (pooling <= LLAMA_POOLING_TYPE_NONE || pooling == LLAMA_POOLING_TYPE_LAST)) {
        // The last token has seen the whole text: its row needs no pooling, so
        // the text is computed in pieces however large the batch is.
        p.pooling_type = LLAMA_POOLING_TYPE_NONE;
        p.n_ubatch = std::min(p.n_ubatch, piece_max);
        return p;
    }
    p.n_batch = p.n_ubatch = std::min(context, std::max(o.batch, whole_batch_min));
    if (!is_causal(m)) {
        p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO;
    }
    return p;
}

void open_context(td_model & m, const td_options & o) {
    log_capture log;
    check_heads(m.model, o);
    llama_context_params p = context_params(m.model, o);
    m.ctx = llama_init_from_model(m.model, p);
    if (!m.ctx) {
        throw std::runtime_error(log.text("the context could not be made"));
    }
    m.memory = llama_get_memory(m.ctx);
    ggml_threadpool_params tp;
    ggml_threadpool_params_init(&tp, o.threads);
    tp.poll = uint32_t(o.poll);
    m.pool = ggml_threadpool_new(&tp);
    if (!m.pool) {
        throw std::runtime_error("the compute threads could not be started");
    }
    llama_attach_threadpool(m.ctx, m.pool, m.pool);
}

void make_batch(td_model & m) {
    size_t n = llama_n_batch(m.ctx);
    m.token.resize(n);
    m.pos.resize(n);
    m.seq.resize(n);
    m.logits.resize(n);
    m.n_seq.assign(n, 1);
    m.seq_ptr.resize(n);
    for (size_t i = 0; i < n; i++) {
        m.seq_ptr[i] = &m.seq[i];
    }
}

void index_vocab(td_model & m) {
    m.vocab = llama_model_get_vocab(m.model);
    if (llama_vocab_type(m.vocab) == LLAMA_VOCAB_TYPE_NONE) {
        throw std::runtime_error("the model has no vocabulary");
    }
    m.n_vocab = llama_vocab_n_tokens(m.vocab);
    m.masked.resize(size_t(m.n_vocab));
    m.weights.resize(size_t(m.n_vocab));
    m.flags.resize(size_t(m.n_vocab));
    for (int32_t t = 0; t < m.n_vocab; t++) {
        int attr = llama_vocab_get_attr(m.vocab, t);
        uint8_t f = 0;
        if (attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) {
            f |= TD_TOKEN_CONTROL;
        }
        if (attr & LLAMA_TOKEN_ATTR_USER_DEFINED) {
            f |= TD_TOKEN_USER;
        }
        if (llama_vocab_is_eog(m.vocab, t)) {
            f |= TD_TOKEN_EOG;
            m.eog.push_back(t);
        }
        m.flags[size_t(t)] = f;
    }
}

} // namespace

int decode_batch(td_model & m, int32_t n, td_error * err) {
    llama_batch b{};
    b.n_tokens = n;
    b.token = m.token.data();
    b.pos = m.pos.data();
    b.n_seq_id = m.n_seq.data();
    b.seq_id = m.seq_ptr.data();
    b.logits = m.logits.data();
    if (m.pooled) {
        // Pooling is over the rows of output tokens.
        std::fill(m.logits.begin(), m.logits.begin() + n, int8_t(1));
    }
    log_capture log(log_capture::only_text);
    int rc = llama_decode(m.ctx, b);
    if (rc != 0 && rc != 1) {
        set_error(err, log.text(("llama_decode returned " + std::to_string(rc)).c_str()));
    }
    return rc;
}

namespace {

// warm_up touches all weights once and finds out how KV rows look.
void warm_up(td_model & m) {
    int32_t n = llama_n_batch(m.ctx) < 2 ? 1 : 2;
    for (int32_t i = 0; i < n; i++) {
        int32_t bos = llama_vocab_bos(m.vocab);
        m.token[i] = bos >= 0 && bos < m.n_vocab ? bos : 0;
        m.pos[i] = i;
        m.seq[i] = 0;
        m.logits[i] = 1;
    }
    td_error err{};
    llama_set_warmup(m.ctx, true);
    if (decode_batch(m, n, &err) != 0) {
        throw std::runtime_error(std::string("the first computation failed: ") + err.text);
    }
    llama_synchronize(m.ctx);
    llama_set_warmup(m.ctx, false);
    if (!m.memory) {
        return;
    }
    // What has recurrent state, or is not causal, has no rows that stand for
    // tokens one by one.
    if (!m.embeds && !llama_model_is_recurrent(m.model) && !llama_model_is_hybrid(m.model)) {
        try {
            describe_kv(m);
        } catch (const std::exception &) {
            m.kv = {};
        }
    }
    llama_memory_clear(m.memory, true);
}

void describe(const td_model & m, td_info & info) {
    std::memset(&info, 0, sizeof info);
    std::string arch = metadata(m.model, "general.architecture");
    std::strncpy(info.architecture, arch.c_str(), sizeof info.architecture - 1);
    llama_model_desc(m.model, info.description, sizeof info.description);
    info.chat_template = llama_model_chat_template(m.model, nullptr);
    info.parameters = llama_model_n_params(m.model);
    info.size_bytes = llama_model_size(m.model);
    info.context_train = llama_model_n_ctx_train(m.model);
    info.layers = llama_model_n_layer(m.model);
    info.embedding = llama_pooling_type(m.ctx) == LLAMA_POOLING_TYPE_RANK ? int32_t(llama_model_n_cls_out(m.model)) : llama_model_n_embd(m.model);
    info.sliding_window = llama_model_n_swa(m.model);
    info.vocab_size = m.n_vocab;
    info.context = llama_n_ctx_seq(m.ctx);
    info.batch = llama_n_batch(m.ctx);
    info.micro_batch = llama_n_ubatch(m.ctx);
    info.sequences = llama_n_seq_max(m.ctx);
    info.has_memory = m.memory != nullptr;
    info.recurrent = llama_model_is_recurrent(m.model) || llama_model_is_hybrid(m.model);
    info.fixed_positions = fixed_positions(m.model);
    info.embeds = m.embeds;
    info.whole_batch = !m.memory || m.pooled;
}

} // namespace


extern "C" td_model * td_load(const td_options * o, td_info * info, td_error * err) {
    return guarded(err, static_cast<td_model *>(nullptr), [&]() -> td_model * {
        err->text[0] = 0;
        auto m = std::make_unique<td_model>();
        m->model = load_weights(*o);
        if (!m->model) {
            return nullptr;
        }
        td_options options = *o;
        options.embeddings = o->embeddings || only_embeds(m->model);
        index_vocab(*m);
        open_context(*m, options);
        m->embeds = options.embeddings;
        m->pooled = m->embeds && llama_pooling_type(m->ctx) != LLAMA_POOLING_TYPE_NONE;
        make_batch(*m);
        warm_up(*m);
        describe(*m, *info);
        m->thread = std::make_unique<runner>(o->done);
        return m.release();
    });
}

extern "C" td_model * td_load_vocab(const char * path, td_info * info, td_error * err) {
    return guarded(err, static_cast<td_model *>(nullptr), [&]() -> td_model * {
        log_capture log;
        llama_model_params p = llama_model_default_params();
        p.vocab_only = true;
        p.use_mmap = false;
        auto m = std::make_unique<td_model>();
        m->model = llama_model_load_from_file(path, p);
        if (!m->model) {
            throw std::runtime_error(log.text("the vocabulary could not be loaded"));
        }
        index_vocab(*m);
        std::memset(info, 0, sizeof *info);
        info->chat_template = llama_model_chat_template(m->model, nullptr);
        info->context_train = llama_model_n_ctx_train(m->model);
        info->embeds = only_embeds(m->model);
        return m.release();
    });
}

extern "C" void td_free(td_model * m) { delete m; }

extern "C" td_batch td_get_batch(td_model * m) {
    return td_batch{m->token.data(), m->pos.data(), m->seq.data(), m->logits.data()};
}

extern "C" void td_decode(td_model * m, int32_t n) {
    m->thread->start([m, n] {
        auto & d = m->decoded;
        d.rc = guarded(&d.err, int(TD_FAILED), [&]() -> int {
            stopwatch watch;
            int rc = decode_batch(*m, n, &d.err);
            d.timing = watch.read();
            return rc == 0 ? TD_OK : rc == 1 ? TD_NO_ROOM : TD_FAILED;
        });
    });
}

extern "C" int td_decoded(td_model * m, td_timing * timing, td_error * err) {
    *timing = m->decoded.timing;
    *err = m->decoded.err;
    return m->decoded.rc;
}

extern "C" void td_set_threads(td_model * m, int32_t n) { llama_set_n_threads(m->ctx, n, n); }

extern "C" bool td_seq_remove(td_model * m, int32_t seq, int32_t from) {
    return !m->memory || llama_memory_seq_rm(m->memory, seq, from, -1);
}

extern "C" const float * td_embedding(td_model * m, int32_t seq, int32_t i) {
    return m->pooled ? llama_get_embeddings_seq(m->ctx, seq) : llama_get_embeddings_ith(m->ctx, i);
}
