#include "fm2/model_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "fm2/hash.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

constexpr std::array<char, 8> magic{'f', 'm', '2', 'm', 'o', 'd', 'e', 'l'};
constexpr std::size_t max_sections = 1 << 16;

struct Header {
    std::array<char, 8> magic;
    std::uint32_t version, sections;
    std::uint64_t size, checksum, own_checksum;
    std::array<std::byte, 24> reserved;
};
static_assert(sizeof(Header) == ModelFile::alignment);

struct Entry {
    std::array<char, ModelFile::name_size> name;  // padded with zeros
    std::uint64_t offset, bytes;
};
static_assert(sizeof(Entry) == ModelFile::alignment);

std::uint64_t load_word(const std::byte* from) {
    std::uint64_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// Hashes eight words at a time, so that no multiplication waits for another.
std::uint64_t hash_part(std::span<const std::byte> bytes) {
    constexpr std::size_t lanes = 8, stripe = lanes * sizeof(std::uint64_t);
    std::array<std::uint64_t, lanes> state;
    for (std::size_t l = 0; l < lanes; ++l) state[l] = bytes.size() + l;
    std::size_t at = 0;
    for (; at + stripe <= bytes.size(); at += stripe)
        for (std::size_t l = 0; l < lanes; ++l)
            state[l] = mix(state[l] ^ load_word(bytes.data() + at + l * 8), 0xa0761d6478bd642fu + 2 * l);
    std::array<std::byte, stripe> last{};
    std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), last.begin());
    for (std::size_t l = 0; l < lanes; ++l) state[l] = mix(state[l] ^ load_word(last.data() + l * 8), 0xe7037ed1a0b428dbu + 2 * l);
    std::uint64_t total = 0;
    for (const std::uint64_t part : state) total = mix(total ^ part, 0x9e3779b97f4a7c15u);
    return total;
}

std::uint64_t own_checksum(const Header& header) {
    return hash_part(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, own_checksum)));
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes, std::size_t threads) {
    constexpr std::size_t part = 1 << 20;
    std::vector<std::uint64_t> sums((bytes.size() + part - 1) / part);
    parallel_for(sums.size(), threads,
                 [&](std::size_t i) { sums[i] = hash_part(bytes.subspan(i * part, std::min(part, bytes.size() - i * part))); });
    return hash_part(std::as_bytes(std::span(sums)));
}

std::vector<std::byte> model_header(std::uint32_t sections, std::span<const std::byte> body, std::size_t threads) {
    Header header{magic, ModelFile::version, sections, sizeof(Header) + body.size(), checksum(body, threads), 0, {}};
    header.own_checksum = own_checksum(header);
    const auto bytes = std::as_bytes(std::span(&header, 1));
    return {bytes.begin(), bytes.end()};
}

ModelFile::ModelFile(const std::string& path, bool verify, std::size_t threads) : path_(path) {
    map();
    try {
        read_index();
        if (verify && fm2::checksum(mapping_.subspan(sizeof(Header)), threads) != checksum_)
            reject("checksum mismatch; the file is damaged");
    } catch (...) {
        munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
        throw;
    }
}

ModelFile::~ModelFile() { munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size()); }

void ModelFile::map() {
    if (path_.find('\0') != std::string::npos) throw BadModel(std::string(path_.c_str()) + ": the path continues after a NUL");
    const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not block
    if (file < 0) throw BadModel(path_ + ": " + std::strerror(errno));
    struct stat status;
    const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    const auto size = regular ? static_cast<std::size_t>(status.st_size) : 0;
    void* at = size < sizeof(Header) ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (!regular) throw BadModel(path_ + ": not a file");
    if (size < sizeof(Header)) reject("too short for a header");
    if (at == MAP_FAILED) throw BadModel(path_ + ": cannot be mapped into memory: " + std::strerror(errno));
    mapping_ = {static_cast<const std::byte*>(at), size};
}

void ModelFile::read_index() {
    Header header;
    std::memcpy(&header, mapping_.data(), sizeof header);
    if (header.magic != magic) reject("it does not start with 'fm2model'");
    if (header.version != version)
        reject("format version " + std::to_string(header.version) + "; this fm2 reads version " + std::to_string(version) +
               ". Compile the run again with fm2 compile");
    if (header.own_checksum != own_checksum(header) || header.reserved != decltype(header.reserved){}) reject("damaged header");
    if (header.size != mapping_.size())
        reject("expected " + std::to_string(header.size) + " bytes, got " + std::to_string(mapping_.size()));
    checksum_ = header.checksum;
    if (header.sections > max_sections || sizeof(Header) + header.sections * sizeof(Entry) > mapping_.size()) reject("truncated index");
    for (std::size_t i = 0; i < header.sections; ++i) {
        Entry entry;
        std::memcpy(&entry, mapping_.data() + sizeof(Header) + i * sizeof(Entry), sizeof entry);
        if (entry.offset % alignment || entry.offset > mapping_.size() || entry.bytes > mapping_.size() - entry.offset)
            reject("a section lies outside the file");
        const auto end = std::find(entry.name.begin(), entry.name.end(), '\0');
        sections_.push_back({std::string(entry.name.begin(), end), mapping_.subspan(entry.offset, entry.bytes)});
    }
}

void ModelFile::prefault() const {
    auto* const at = const_cast<std::byte*>(mapping_.data());
#ifdef MADV_POPULATE_READ
    if (madvise(at, mapping_.size(), MADV_POPULATE_READ) == 0) return;
#endif
    madvise(at, mapping_.size(), MADV_WILLNEED);
    constexpr std::size_t page = 4096;
    for (std::size_t i = 0; i < mapping_.size(); i += page) static_cast<void>(*const_cast<volatile const std::byte*>(at + i));
}

void ModelFile::forget() const {
    constexpr std::size_t step = 16 << 20;  // other threads can map pages between the steps
    for (std::size_t i = 0; i < mapping_.size(); i += step) {
        madvise(const_cast<std::byte*>(mapping_.data()) + i, std::min(step, mapping_.size() - i), MADV_DONTNEED);
    }
}

std::vector<std::string> ModelFile::names() const {
    std::vector<std::string> names;
    for (const Section& section : sections_) names.push_back(section.name);
    return names;
}

bool ModelFile::has(std::string_view name) const { return std::ranges::find(sections_, name, &Section::name) != sections_.end(); }

std::span<const std::byte> ModelFile::bytes(std::string_view name) const {
    const auto section = std::ranges::find(sections_, name, &Section::name);
    if (section == sections_.end()) reject("missing section '" + std::string(name) + "'");
    return section->bytes;
}

}  // namespace fm2
