// The file of a compiled model: named sections of numbers, mapped into memory and never copied.
//
// The format, little-endian: a header of 64 bytes (magic, version, number of sections, size of the file, checksum of everything after the
// header, checksum of the header itself); an index entry of 64 bytes per section (name, offset, bytes); the sections, each starting at a
// multiple of 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fm2 {

// The file cannot be read or is not valid; the message names it.
struct BadModel : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class ModelFile {
public:
    static constexpr std::uint32_t version = 3;
    static constexpr std::size_t alignment = 64, name_size = 48;

    // Throws BadModel if the file is not valid; no content can cause anything worse. With `verify`, the checksum of all bytes is compared.
    ModelFile(const std::string& path, bool verify, std::size_t threads);
    ~ModelFile();
    ModelFile(const ModelFile&) = delete;
    ModelFile& operator=(const ModelFile&) = delete;

    const std::string& path() const { return path_; }
    std::uint64_t checksum() const { return checksum_; }  // of everything after the header, when it was written
    std::size_t offset(std::string_view name) const { return static_cast<std::size_t>(bytes(name).data() - mapping_.data()); }
    std::vector<std::string> names() const;
    bool has(std::string_view name) const;
    std::span<const std::byte> bytes(std::string_view name) const;  // throws BadModel if the section does not exist

    // Returns a section as numbers. Throws BadModel if it does not exist or, with `count`, does not have so many.
    template <class T>
    std::span<const T> numbers(std::string_view name) const {
        const std::span<const std::byte> section = bytes(name);
        if (section.size() % sizeof(T)) reject_size(name);
        return {reinterpret_cast<const T*>(section.data()), section.size() / sizeof(T)};
    }
    template <class T>
    std::span<const T> numbers(std::string_view name, std::size_t count) const {
        const std::span<const T> section = numbers<T>(name);
        if (section.size() != count) reject_size(name);
        return section;
    }

    // Reads all pages into memory and maps them, so that the first rows do not wait for page faults.
    void prefault() const;
    // Drops the pages from this process, so that unmapping is quick. A later access maps them again.
    void forget() const;

    // Throws BadModel.
    [[noreturn]] void reject(const std::string& reason) const { throw BadModel(path_ + ": not a valid compiled model: " + reason); }

private:
    struct Section {
        std::string name;
        std::span<const std::byte> bytes;
    };

    void map();
    void read_index();
    [[noreturn]] void reject_size(std::string_view name) const { reject("section '" + std::string(name) + "' has an unexpected size"); }

    std::string path_;
    std::span<const std::byte> mapping_;
    std::uint64_t checksum_ = 0;
    std::vector<Section> sections_;
};

// Returns the checksum that the header stores.
std::uint64_t checksum(std::span<const std::byte> bytes, std::size_t threads);

// Returns the header of a file whose remaining bytes, index and sections, are `body`.
std::vector<std::byte> model_header(std::uint32_t sections, std::span<const std::byte> body, std::size_t threads);

}  // namespace fm2
