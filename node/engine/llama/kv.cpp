#include <cstring>

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
    ggml_tensor * tensor;
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
        spans.push_back({const_cast<ggml_tensor *>(tensor), row_}); // the cache's, which is not const
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

// cells_reader tells a cache that positions 0 to cells of a sequence are in use, and
// breaks off before it would be asked for their rows: those are written to the
// tensors directly, piece by piece.
class cells_reader : public state_reader {
public:
    struct rows_follow {}; // thrown when the cells were read

    cells_reader(const td_model & m, int32_t seq, uint32_t cells) {
        text_.reserve(2 + 3 * size_t(cells));
        text_.push_back(m.kv.streams);
        text_.push_back(cells);
        for (uint32_t pos = 0; pos < cells; pos++) {
            text_.insert(text_.end(), {pos, 1, uint32_t(seq)});
        }
    }

    void read_to(void * dst, size_t size) override {
        if (at_ == text_.size()) {
            throw rows_follow{};
        }
        if (size != sizeof text_[at_]) {
            throw std::runtime_error("llama.cpp reads another state than it writes");
        }
        std::memcpy(dst, &text_[at_++], size);
    }

    const uint8_t * read(size_t) override { throw std::runtime_error("llama.cpp reads another state than it writes"); }

    size_t n_bytes() override { return at_ * sizeof text_[0]; }

private:
    std::vector<uint32_t> text_;
    size_t at_ = 0;
};

// set_cells makes seq hold positions 0 to n and nothing else. Their rows are what
// the tensors had there.
void set_cells(td_model & m, int32_t seq, uint32_t n) {
    for (size_t cache = 0; cache < m.kv.caches.size(); cache++) {
        // Of two caches the second is that of the layers with a window.
        cells_reader r(m, seq, n);
        try {
            view(m).state_read(r, seq, cache == 0 ? 0 : state_window_only);
        } catch (const cells_reader::rows_follow &) {
            continue;
        }
        throw std::runtime_error("llama.cpp reads another state than it writes");
    }
}

// change runs f, which sets the rows of seq; if that fails, seq is empty.
template <typename F> int change(td_model & m, int32_t seq, td_error * err, F f) {
    int rc = guarded(err, int(TD_FAILED), [&]() -> int {
        llama_synchronize(m.ctx);
        log_capture log;
        f();
        return TD_OK;
    });
    if (rc != TD_OK) {
        llama_memory_seq_rm(m.memory, seq, -1, -1);
    }
    return rc;
}

uint32_t held(const td_model & m, int32_t seq) { return uint32_t(llama_memory_seq_pos_max(m.memory, seq) + 1); }

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
        if (uint32_t(to) > held(*m, seq)) {
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

extern "C" int td_kv_import(td_model * m, int32_t seq, int32_t from, const td_kv_block * blocks, size_t n, td_error * err) {
    return change(*m, seq, err, [&] {
        uint32_t tokens = uint32_t(from);
        if (from > 0 && held(*m, seq) != tokens) {
            throw std::runtime_error("the rows do not follow those of the sequence");
        }
        for (size_t b = 0; b < n; b++) {
            tokens += uint32_t(blocks[b].tokens);
        }
        set_cells(*m, seq, tokens);
        layout_writer w = layout_of(*m, seq);
        size_t before = 0; // bytes of one token in a block that stand before this tensor's
        for (size_t i : in_order(w)) {
            const span & s = w.spans[i];
            size_t at = s.row * size_t(from);
            for (size_t b = 0; b < n; b++) {
                size_t count = size_t(blocks[b].tokens);
                ggml_backend_tensor_set(s.tensor, blocks[b].rows + before * count, at, s.row * count);
                at += s.row * count;
            }
            before += s.row;
        }
    });
}

// td_kv_copy goes through memory of the host, a tensor at a time: llama.cpp's own
// copy moves the whole room of a sequence, however few rows are wanted.
extern "C" int td_kv_copy(td_model * m, int32_t src, int32_t dst, int32_t n, td_error * err) {
    return change(*m, dst, err, [&] {
        if (n < 1 || uint32_t(n) > held(*m, src)) {
            throw std::runtime_error("the sequence has fewer rows");
        }
        layout_writer from = layout_of(*m, src);
        set_cells(*m, dst, uint32_t(n));
        layout_writer to = layout_of(*m, dst);
        std::vector<uint8_t> rows;
        for (size_t i : in_order(from)) {
            rows.resize(from.spans[i].row * size_t(n));
            ggml_backend_tensor_get(from.spans[i].tensor, rows.data(), 0, rows.size());
            ggml_backend_tensor_set(to.spans[i].tensor, rows.data(), 0, rows.size());
        }
    });
}
