// DataFrames in memory (polars, pandas, pyarrow), read through Arrow's C stream interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/cells.h"

extern "C" {  // the three structures of Arrow's specification

struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    struct ArrowSchema** children;
    struct ArrowSchema* dictionary;
    void (*release)(struct ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    struct ArrowArray** children;
    struct ArrowArray* dictionary;
    void (*release)(struct ArrowArray*);
    void* private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
    int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
    const char* (*get_last_error)(struct ArrowArrayStream*);
    void (*release)(struct ArrowArrayStream*);
    void* private_data;
};
}

namespace fm2 {

// Releases an Arrow structure in its destructor.
template <class Structure>
struct Owned : Structure {
    Owned() : Structure{} {}
    ~Owned() { clear(); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    void clear() {
        if (this->release) this->release(this);
        static_cast<Structure&>(*this) = {};
    }
};

// Reads a stream batch by batch. Takes ownership of the stream.
class ArrowReader {
public:
    explicit ArrowReader(ArrowArrayStream* stream);

    const std::vector<std::string>& names() const { return names_; }
    bool next();  // advances to the next batch; false at the end
    std::size_t rows() const;
    // A column of the current batch; all cells of `no_column` are missing. Throws std::invalid_argument if its type is unsupported, such as
    // nested lists.
    static constexpr std::size_t no_column = SIZE_MAX;
    std::unique_ptr<Column> column(std::size_t index) const;

private:
    [[noreturn]] void fail(const char* operation);

    Owned<ArrowArrayStream> stream_;
    Owned<ArrowSchema> schema_;
    Owned<ArrowArray> array_;
    std::vector<std::string> names_;
};

}  // namespace fm2
