#include <cstring>
#include <functional>

#include "bridge_internal.h"
#include "memory_abi.h"

namespace {

memory_view & view(const td_model & m) { return *reinterpret_cast<memory_view *>(m.memory); }

// The state of one sequence, as written and read, for each cache of the model (one,
// or two where some layers have a sliding window):
//
//   u32 streams, then for each stream
//     u32 cells; nothing more of a stream that has none
//     cells × { i32 position, u32 1, i32 sequence }
//     u32 transposed, u32 layers
//     layers × { i32 type, u64 row bytes, rows }   K
//     layers × { i32 type, u64 row bytes, rows }   V
//
// A sequence has a stream of its own, so that its rows lie in the order of its
// positions from 0 on. Everything else is refused, never guessed.

// span is a range of rows in a tensor of the cache.
struct span {
    const ggml_tensor * tensor;
    size_t row;
};

// layout_writer takes the state of a sequence apart without copying a row: spans[i]
// is where K or V of a layer begins, in the order of td_kv_layout.
class layout_writer : public state_writer {
public:
    std::vector<span> spans;
    std::vector<int32_t> types;
    uint32_t streams = 0;
    std::vector<uint32_t> layers; // of each cache

    explicit layout_writer(int32_t positions) : positions_(uint32_t(positions)) {}

    void write(const void * src, size_t size) override {
        switch (next_) {
        case at_streams:
            need(size == 4);
            streams = left_ = number(src);
            need(left_ > 0);
            seen_ = false;
            next_ = at_cells;
            return;
        case at_cells:
            need(size == 4);
            cells_ = number(src);
            left_--;
            if (cells_ == 0) {
                end_stream();
                return;
            }
            need(!seen_ && cells_ == positions_);
            seen_ = true;
            cell_ = 0;
            next_ = at_position;
            return;
        case at_position:
            need(size == 4 && number(src) == cell_);
            next_ = at_count;
            return;
        case at_count:
            need(size == 4 && number(src) == 1);
            next_ = at_sequence;
            return;
        case at_sequence:
            next_ = ++cell_ < cells_ ? at_position : at_transposed;
            return;
        case at_transposed:
            need(size == 4 && number(src) == 0);
            next_ = at_layers;
            return;
        case at_layers:
            need(size == 4);
            layers.push_back(number(src));
            tensors_ = 2 * layers.back();
            need(tensors_ > 0);
            next_ = at_type;
            return;
        case at_type:
            need(size == 4);
            types.push_back(int32_t(number(src)));
            next_ = at_row;
            return;
        case at_row:
            need(size == 8);
            std::memcpy(&row_, src, 8);
            next_ = at_rows;
            return;
        case at_rows:
            need(false);
        }
    }

    void write_tensor(const ggml_tensor * tensor, size_t offset, size_t size) override {
        need(next_ == at_rows && offset == 0 && size == row_ * cells_);
        spans.push_back({tensor, row_});
        if (--tensors_ > 0) {
            next_ = at_type;
        } else {
            end_stream();
        }
    }

    size_t n_bytes() override { return 0; }

    void finish() const { need(next_ == at_streams && !spans.empty()); }

private:
    enum { at_streams, at_cells, at_position, at_count, at_sequence, at_transposed, at_layers, at_type, at_row, at_rows } next_ = at_streams;
    uint32_t positions_, left_ = 0, cells_ = 0, cell_ = 0, tensors_ = 0;
    uint64_t row_ = 0;
    bool seen_ = false;

    static uint32_t number(const void * src) {
        uint32_t v;
        std::memcpy(&v, src, 4);
        return v;
    }

    static void need(bool ok) {
        if (!ok) {
            throw std::runtime_error("the rows of the sequence do not lie in the order of their positions");
        }
    }

    void end_stream() {
        if (left_ > 0) {
            next_ = at_cells;
            return;
        }
        need(seen_);
        next_ = at_streams;
    }
};

layout_writer layout_of(const td_model & m, int32_t seq) {
    int32_t first = llama_memory_seq_pos_min(m.memory, seq), last = llama_memory_seq_pos_max(m.memory, seq);
    if (first != 0) {
        throw std::runtime_error("the sequence is empty, or lacks its beginning");
    }
    layout_writer w(last + 1);
    view(m).state_write(w, seq, 0);
    w.finish();
    return w;
}

// in_order lists the tensors as K and V of each layer in turn; the state has all K
// of a cache before all V.
std::vector<size_t> in_order(const layout_writer & w) {
    std::vector<size_t> order;
    size_t base = 0;
    for (uint32_t n : w.layers) {
        for (uint32_t l = 0; l < n; l++) {
            order.push_back(base + l);
            order.push_back(base + n + l);
        }
        base += 2 * size_t(n);
    }
    return order;
}

// tensor_rows says which rows a cache wants next: those of one tensor.
struct tensor_rows {
    size_t index;  // in td_kv_layout
    size_t before; // bytes per token that stand before these in a block
    size_t row;    // bytes per token
};

using row_source = std::function<void(const tensor_rows & which, uint8_t * dst)>;

// rows_reader hands the first rows of a sequence to a cache.
class rows_reader : public state_reader {
public:
    rows_reader(const td_model & m, int32_t seq, uint32_t tokens, row_source source) : cells_(tokens), source_(std::move(source)) {
        size_t tensor = 0, offset = 0; // offset: bytes of one token's rows before this tensor's
        for (uint32_t layers : m.kv.caches) {
            number(m.kv.streams);
            number(cells_);
            for (uint32_t pos = 0; pos < cells_; pos++) {
                number(pos);
                number(1);
                number(uint32_t(seq));
            }
            number(0);
            number(layers);
            for (size_t kind = 0; kind < 2; kind++) { // all K, then all V
                size_t at = offset;
                for (uint32_t l = 0; l < layers; l++) {
                    const td_kv_row & k = m.kv.rows[tensor + 2 * l], & v = m.kv.rows[tensor + 2 * l + 1];
                    const td_kv_row & row = kind == 0 ? k : v;
                    number(uint32_t(row.type));
                    long_number(row.bytes);
                    parts_.push_back({text_.size(), {tensor + 2 * l + kind, kind == 0 ? at : at + k.bytes, row.bytes}});
                    at += k.bytes + v.bytes;
                }
            }
            for (uint32_t l = 0; l < layers; l++) {
                offset += m.kv.rows[tensor + 2 * l].bytes + m.kv.rows[tensor + 2 * l + 1].bytes;
            }
            tensor += 2 * size_t(layers);
            for (uint32_t s = 1; s < m.kv.streams; s++) {
                number(0);
            }
        }
    }

    // read returns the next bytes: numbers, or all rows of one tensor.
    const uint8_t * read(size_t size) override {
        bytes_ += size;
        if (part_ < parts_.size() && parts_[part_].at == at_) {
            const tensor_rows & r = parts_[part_++].rows;
            need(size == r.row * cells_);
            rows_.resize(size);
            source_(r, rows_.data());
            return rows_.data();
        }
        need(size <= text_.size() - at_ && (part_ == parts_.size() || at_ + size <= parts_[part_].at));
        const uint8_t * p = text_.data() + at_;
        at_ += size;
        return p;
    }

    void read_to(void * dst, size_t size) override { std::memcpy(dst, read(size), size); }

    size_t n_bytes() override { return bytes_; }

private:
    struct part {
        size_t at; // in text_, where these rows follow
        tensor_rows rows;
    };
    uint32_t cells_;
    row_source source_;
    std::vector<uint8_t> text_, rows_;
    std::vector<part> parts_;
    size_t at_ = 0, part_ = 0, bytes_ = 0;

    static void need(bool ok) {
        if (!ok) {
            throw std::runtime_error("llama.cpp reads another state than it writes");
        }
    }

    void number(uint32_t v) {
        auto * p = reinterpret_cast<const uint8_t *>(&v);
        text_.insert(text_.end(), p, p + sizeof v);
    }

    void long_number(uint64_t v) {
        auto * p = reinterpret_cast<const uint8_t *>(&v);
        text_.insert(text_.end(), p, p + sizeof v);
    }
};

// replace makes seq hold rows and nothing else; if that fails, nothing at all.
int replace(td_model & m, int32_t seq, uint32_t tokens, row_source source, td_error * err) {
    int rc = guarded(err, int(TD_FAILED), [&]() -> int {
        log_capture log;
        rows_reader r(m, seq, tokens, std::move(source));
        view(m).state_read(r, seq, 0);
        return TD_OK;
    });
    if (rc != TD_OK) {
        llama_memory_seq_rm(m.memory, seq, -1, -1);
    }
    return rc;
}

} // namespace

void describe_kv(td_model & m) {
    m.kv = {};
    layout_writer w = layout_of(m, 0);
    for (size_t i : in_order(w)) {
        m.kv.rows.push_back({w.types[i], uint32_t(w.spans[i].row)});
        m.kv.token_bytes += w.spans[i].row;
    }
    m.kv.caches = w.layers;
    m.kv.streams = w.streams;
}

extern "C" size_t td_kv_layout(td_model * m, const td_kv_row ** rows) {
    *rows = m->kv.rows.data();
    return m->kv.rows.size();
}

extern "C" int td_kv_export(td_model * m, int32_t seq, int32_t from, int32_t to, uint8_t * dst, td_error * err) {
    return guarded(err, int(TD_FAILED), [&]() -> int {
        llama_synchronize(m->ctx);
        layout_writer w = layout_of(*m, seq);
        if (to > llama_memory_seq_pos_max(m->memory, seq) + 1) {
            throw std::runtime_error("the sequence has fewer rows");
        }
        for (size_t i : in_order(w)) {
            const span & s = w.spans[i];
            size_t n = s.row * size_t(to - from);
            ggml_backend_tensor_get(s.tensor, dst, s.row * size_t(from), n);
            dst += n;
        }
        return TD_OK;
    });
}

extern "C" int td_kv_import(td_model * m, int32_t seq, const td_kv_block * blocks, size_t n, td_error * err) {
    llama_synchronize(m->ctx);
    uint32_t tokens = 0;
    for (size_t b = 0; b < n; b++) {
        tokens += uint32_t(blocks[b].tokens);
    }
    auto gather = [&](const tensor_rows & r, uint8_t * dst) {
        for (size_t b = 0; b < n; b++) {
            size_t count = size_t(blocks[b].tokens);
            std::memcpy(dst, blocks[b].rows + r.before * count, r.row * count);
            dst += r.row * count;
        }
    };
    return replace(*m, seq, tokens, gather, err);
}

extern "C" int td_kv_copy(td_model * m, int32_t src, int32_t dst, int32_t n, td_error * err) {
    std::vector<span> tensors;
    int rc = guarded(err, int(TD_FAILED), [&]() -> int {
        llama_synchronize(m->ctx);
        layout_writer w = layout_of(*m, src);
        if (n < 1 || n > llama_memory_seq_pos_max(m->memory, src) + 1) {
            throw std::runtime_error("the sequence has fewer rows");
        }
        for (size_t i : in_order(w)) {
            tensors.push_back(w.spans[i]);
        }
        return TD_OK;
    });
    if (rc != TD_OK) {
        llama_memory_seq_rm(m->memory, dst, -1, -1);
        return rc;
    }
    auto fetch = [&](const tensor_rows & r, uint8_t * to) { ggml_backend_tensor_get(tensors[r.index].tensor, to, 0, r.row * size_t(n)); };
    return replace(*m, dst, uint32_t(n), fetch, err);
}
