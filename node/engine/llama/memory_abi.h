// The interfaces of llama.cpp through which a KV cache writes and reads its state.
// Its public C functions only move whole sequences through one buffer; these give
// the tensors and the ranges of rows. Only the order of the virtual functions
// counts here. TestMemoryABI compares it with llama.cpp's own headers.
#ifndef TANDEM_MEMORY_ABI_H
#define TANDEM_MEMORY_ABI_H

#include <cstddef>
#include <cstdint>

#include "abi.h"

// state_window_only is the flag with which only the cache of the layers with a window
// is read or written.
constexpr uint32_t state_window_only = 1;

class state_writer {
public:
    virtual ~state_writer() = default;
    virtual void write(const void * src, size_t size) = 0;
    virtual void write_tensor(const ggml_tensor * tensor, size_t offset, size_t size) = 0;
    virtual size_t n_bytes() = 0;
};

class state_reader {
public:
    virtual ~state_reader() = default;
    virtual const uint8_t * read(size_t size) = 0;
    virtual void read_to(void * dst, size_t size) = 0;
    virtual size_t n_bytes() = 0;
};

// memory_view is llama_memory_i: what stands before the two functions is never
// called and has no parameters here.
class memory_view {
public:
    virtual ~memory_view() = default;
    virtual void init_batch() = 0;
    virtual void init_full() = 0;
    virtual void init_update() = 0;
    virtual void get_can_shift() const = 0;
    virtual void clear() = 0;
    virtual void seq_rm() = 0;
    virtual void seq_cp() = 0;
    virtual void seq_keep() = 0;
    virtual void seq_add() = 0;
    virtual void seq_div() = 0;
    virtual void seq_pos_min() const = 0;
    virtual void seq_pos_max() const = 0;
    virtual void memory_breakdown() const = 0;
    virtual void state_write(state_writer & io, llama_seq_id seq_id, uint32_t flags) const = 0;
    virtual void state_read(state_reader & io, llama_seq_id seq_id, uint32_t flags) = 0;
};

#endif
