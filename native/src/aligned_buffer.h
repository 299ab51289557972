// Memory that starts at a cache line, so that eight floats are never split across two lines.
#pragma once

#include <cstddef>
#include <vector>

namespace fm2 {

class AlignedBuffer {
public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::size_t bytes) { reserve(bytes); }

    // Makes sure there is room for so many bytes; new ones are zero. Allocates only if the buffer has to grow.
    void reserve(std::size_t bytes) {
        const std::size_t lines = (bytes + sizeof(Line) - 1) / sizeof(Line);
        if (lines > lines_.size()) lines_.resize(lines);
    }
    std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }

private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::vector<Line> lines_;
};

}  // namespace fm2
