// A compiled model as a file: named sections of plain numbers, mapped into memory and never copied.
//
// The file, little-endian: a header of 64 bytes (magic, version, number of sections, size of the file, checksum of all that follows the
// header, checksum of the header so far); an entry of 64 bytes for every section (name, offset, bytes); the sections, each from a
// multiple of 64 bytes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fm2 {

// What is wrong with a file; the message names it.
struct BadModel : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class ModelFile {
public:
    static constexpr std::uint32_t version = 2;
    static constexpr std::size_t alignment = 64, name_size = 48;

    // Throws BadModel, whatever bytes the file holds. With `verify` every byte is read and compared with the checksum.
    ModelFile(const std::string& path, bool verify, std::size_t threads);
    ~ModelFile();
    ModelFile(const ModelFile&) = delete;
    ModelFile& operator=(const ModelFile&) = delete;

    const std::string& path() const { return path_; }
    std::uint64_t checksum() const { return checksum_; }  // of all that follows the header, as it was when it was written
    std::size_t offset(std::string_view name) const { return static_cast<std::size_t>(bytes(name).data() - whole_.data()); }
    bool has(std::string_view name) const;
    std::vector<std::string> names() const;
    std::span<const std::byte> bytes(std::string_view name) const;  // throws BadModel where there is no such section

    // The section as numbers: as many as it holds, or as many as are expected. Throws BadModel where it does not fit.
    template <class T>
    std::span<const T> numbers(std::string_view name) const {
        const std::span<const std::byte> found = bytes(name);
        if (found.size() % sizeof(T)) refuse("the section '" + std::string(name) + "' has a size that does not fit");
        return {reinterpret_cast<const T*>(found.data()), found.size() / sizeof(T)};
    }
    template <class T>
    std::span<const T> numbers(std::string_view name, std::size_t count) const {
        const std::span<const T> found = numbers<T>(name);
        if (found.size() != count) refuse("the section '" + std::string(name) + "' has a size that does not fit");
        return found;
    }

    [[noreturn]] void refuse(const std::string& reason) const { throw BadModel(path_ + " is no model that can be used: " + reason); }

private:
    struct Section {
        std::string name;
        std::span<const std::byte> bytes;
    };

    void map();
    void read_index();

    std::string path_;
    std::span<const std::byte> whole_;
    std::uint64_t checksum_ = 0;
    std::vector<Section> sections_;
};

// What the header says of the bytes after it.
std::uint64_t checksum(std::span<const std::byte> bytes, std::size_t threads);

// The header of a file whose other bytes, index and sections, are these.
std::vector<std::byte> model_header(std::uint32_t sections, std::span<const std::byte> rest, std::size_t threads);

}  // namespace fm2
