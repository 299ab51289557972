// Tensors of the Open Inference Protocol: elements of every datatype, from JSON and from binary data.
#include "fm2/tensor.h"

#include <cstring>
#include <random>
#include <string>

#include "check.h"

namespace {

fm2::Tensor tensor_of(const char* datatype, std::size_t rows, std::size_t width = 0) {
    fm2::Tensor tensor;
    tensor.datatype = &fm2::find_datatype(datatype);
    tensor.shape = {rows, width};
    tensor.dimensions = width ? 2 : 1;
    return tensor;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), std::data(values), bytes.size());
    return bytes;
}

// The texts of all elements, separated by blanks.
std::string read_binary(const fm2::Tensor& tensor, const std::string& data) {
    const std::vector<char> exact(data.begin(), data.end());  // so that the sanitizer sees reads beyond the end
    fm2::TextArena arena;
    fm2::BinaryElements elements(tensor, {exact.data(), exact.size()});
    std::string texts;
    for (std::size_t i = 0; i < tensor.count(); ++i) (texts += elements.text(arena)) += ' ';
    elements.finish();
    return texts;
}

std::string read_json(const fm2::Tensor& tensor, std::string_view data) {
    fm2::TextArena arena;
    fm2::JsonReader json(data, arena);
    std::string texts;
    fm2::read_data(json, tensor, [&] { (texts += fm2::read_element(json, *tensor.datatype, arena)) += ' '; });
    json.finish();
    return texts;
}

}  // namespace

TEST(binary_elements_have_the_text_of_their_value) {
    CHECK(read_binary(tensor_of("INT8", 2), bytes_of<std::int8_t>({-128, 5})) == "-128 5 ");
    CHECK(read_binary(tensor_of("UINT8", 2), bytes_of<std::uint8_t>({255, 5})) == "255 5 ");
    CHECK(read_binary(tensor_of("INT16", 1), bytes_of<std::int16_t>({-300})) == "-300 ");
    CHECK(read_binary(tensor_of("UINT16", 1), bytes_of<std::uint16_t>({65535})) == "65535 ");
    CHECK(read_binary(tensor_of("INT32", 1), bytes_of<std::int32_t>({-70000})) == "-70000 ");
    CHECK(read_binary(tensor_of("UINT32", 1), bytes_of<std::uint32_t>({4294967295u})) == "4294967295 ");
    CHECK(read_binary(tensor_of("INT64", 1), bytes_of<std::int64_t>({INT64_MIN})) == "-9223372036854775808 ");
    CHECK(read_binary(tensor_of("UINT64", 1), bytes_of<std::uint64_t>({UINT64_MAX})) == "18446744073709551615 ");
    CHECK(read_binary(tensor_of("FP32", 3), bytes_of<float>({0.1f, 100000, NAN})) == "0.1 100000  ");
    CHECK(read_binary(tensor_of("FP64", 2), bytes_of<double>({0.1, -2.5})) == "0.1 -2.5 ");
    CHECK(read_binary(tensor_of("FP16", 1), bytes_of<std::uint16_t>({0x4100})) == "2.5 ");
    CHECK(read_binary(tensor_of("BF16", 1), bytes_of<std::uint16_t>({0x4020})) == "2.5 ");
    CHECK(read_binary(tensor_of("BOOL", 3), std::string("\0\1\2", 3)) == "false true true ");
    CHECK(read_binary(tensor_of("BYTES", 2), std::string("\2\0\0\0ab\0\0\0\0", 10)) == "ab  ");
}

TEST(binary_data_must_have_the_size_of_its_shape) {
    CHECK(throws<fm2::RequestError>([] { read_binary(tensor_of("INT64", 2), std::string(15, 'x')); }));
    CHECK(throws<fm2::RequestError>([] { read_binary(tensor_of("INT64", 2, 2), std::string(16, 'x')); }));
    const std::string texts("\1\0\0\0a\1\0\0\0b", 10);
    CHECK(read_binary(tensor_of("BYTES", 2), texts) == "a b ");
    for (std::size_t size = 0; size < texts.size(); ++size)
        CHECK(throws<fm2::RequestError>([&] { read_binary(tensor_of("BYTES", 2), texts.substr(0, size)); }));
    CHECK(throws<fm2::RequestError>([&] { read_binary(tensor_of("BYTES", 1), texts); }));
    CHECK(throws<fm2::RequestError>([] { read_binary(tensor_of("BYTES", 1), "\xff\xff\xff\xff"); }));
}

TEST(json_elements_have_the_text_of_their_value) {
    CHECK(read_json(tensor_of("INT64", 3), "[1, -0, null]") == "1 0  ");
    CHECK(read_json(tensor_of("FP32", 2), "[0.10000000149011612, 5]") == "0.1 5 ");
    CHECK(read_json(tensor_of("BYTES", 2), R"(["a", "b"])") == "a b ");
    CHECK(read_json(tensor_of("BOOL", 2), "[true, false]") == "true false ");
    CHECK(read_json(tensor_of("INT64", 2, 2), "[[1, 2], [3, 4]]") == "1 2 3 4 ");
    CHECK(read_json(tensor_of("INT64", 2, 2), "[1, 2, 3, 4]") == "1 2 3 4 ");
    for (const char* data : {"[[1, 2], [3]]", "[[1, 2], 3, 4]", "[1, [2], 3, 4]", "[[1, 2]]", "[1, 2, 3]", "[1, 2, 3, 4, 5]", "1",
                             "[1, 2, 3, 1.5]", "[1, 2, 3, \"4\"]", "[[1, 2], [3, 4], [5, 6]]", "[[[1, 2], [3, 4]]]", "{}"})
        CHECK(throws<fm2::RequestError>([&] { read_json(tensor_of("INT64", 2, 2), data); }));
}

TEST(arbitrary_binary_data_is_read_or_refused) {
    std::mt19937 random(3);
    const char* datatypes[] = {"BYTES", "INT64", "FP16", "BF16", "FP32", "FP64", "BOOL", "UINT8"};
    for (int round = 0; round < 100'000; ++round) {
        std::string data(random() % 40, '\0');
        for (char& byte : data) byte = random() % 2 ? static_cast<char>(random()) : '\0';
        const fm2::Tensor tensor = tensor_of(datatypes[random() % std::size(datatypes)], random() % 6, random() % 3);
        try {
            read_binary(tensor, data);
        } catch (const fm2::RequestError&) {
        }
    }
}
