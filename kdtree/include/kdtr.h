// Read a KDTR file from memory: header-only C++17 without dependencies. docs/kdtr.md defines every byte.
//
//     kdtr::File file = kdtr::parse(bytes.data(), bytes.size());   // throws kdtr::Error
//     const kdtr::Tensor& depth = file.at("depth");                // a view: `bytes` must outlive it
//
// Every check of the format is done here, with the limits of the Python reader. Multi-byte values are put together
// byte by byte, so the host's byte order and the buffer's alignment do not matter.
#ifndef KDTR_H
#define KDTR_H

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdtr {

constexpr std::uint32_t version = 1;
constexpr std::uint64_t alignment = 64;
constexpr std::uint64_t max_head = std::uint64_t{1} << 24;
constexpr std::uint64_t max_count = std::uint64_t{1} << 16;
constexpr std::uint64_t max_name = std::uint64_t{1} << 10;
constexpr std::uint64_t max_value = std::uint64_t{1} << 20;
constexpr std::uint64_t max_ndim = 8;
constexpr std::uint64_t max_size = (std::uint64_t{1} << 63) - 1;

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class DType : std::uint8_t { b8 = 1, u8 = 2, i8 = 3, i32 = 4, i64 = 5, u64 = 6, f16 = 7, bf16 = 8, f32 = 9, f64 = 10 };

// A view into the parsed buffer. The data is little-endian, C order, `nbytes` bytes at `data`.
struct Tensor {
    std::string name;
    DType dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t offset;
    std::uint64_t nbytes;
    std::uint32_t crc32;
    const unsigned char* data;
};

struct File {
    std::vector<Tensor> tensors;  // in file order
    std::map<std::string, std::string> metadata;

    const Tensor& at(std::string_view name) const {
        for (const Tensor& tensor : tensors)
            if (tensor.name == name) return tensor;
        throw Error("there is no tensor named " + std::string(name));
    }
};

// The unsigned value of `count` (at most 8) little-endian bytes.
inline std::uint64_t little_endian(const unsigned char* bytes, std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
    return value;
}

// Bytes per element, or 0 for a code that is not a DType.
constexpr std::uint64_t item_size(DType dtype) {
    switch (dtype) {
        case DType::b8: case DType::u8: case DType::i8: return 1;
        case DType::f16: case DType::bf16: return 2;
        case DType::i32: case DType::f32: return 4;
        case DType::i64: case DType::u64: case DType::f64: return 8;
    }
    return 0;
}

namespace detail {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) ? 0xEDB88320u : 0u);
        table[byte] = value;
    }
    return table;
}

inline constexpr std::array<std::uint32_t, 256> crc_table = make_crc_table();

}  // namespace detail

// CRC-32 as in zlib, PNG and Ethernet.
inline std::uint32_t crc32(const unsigned char* bytes, std::uint64_t count) {
    std::uint32_t value = 0xFFFFFFFFu;
    for (std::uint64_t i = 0; i < count; ++i) value = (value >> 8) ^ detail::crc_table[(value ^ bytes[i]) & 0xFFu];
    return value ^ 0xFFFFFFFFu;
}

namespace detail {

inline void need(bool holds, const std::string& message) {
    if (!holds) throw Error(message);
}

// Unicode table 3-7: no overlong form, no surrogate, nothing above U+10FFFF.
inline bool is_utf8(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    for (std::size_t i = 0; i < text.size();) {
        const unsigned lead = byte(i);
        const std::size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
        if (length == 0 || length > text.size() - i) return false;
        for (std::size_t k = 1; k < length; ++k)
            if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
        if (lead == 0xE0 && byte(i + 1) < 0xA0) return false;
        if (lead == 0xED && byte(i + 1) > 0x9F) return false;
        if (lead == 0xF0 && byte(i + 1) < 0x90) return false;
        if (lead == 0xF4 && byte(i + 1) > 0x8F) return false;
        i += length;
    }
    return true;
}

inline std::uint64_t aligned(std::uint64_t position) { return (position + alignment - 1) / alignment * alignment; }

// Reads the head from left to right and never past its end.
class Cursor {
public:
    Cursor(const unsigned char* bytes, std::uint64_t position, std::uint64_t end)
        : bytes_(bytes), position_(position), end_(end) {}

    std::uint64_t left() const { return end_ - position_; }

    const unsigned char* take(std::uint64_t count, const char* what) {
        need(count <= left(), std::string(what) + " goes past the end of the head");
        position_ += count;
        return bytes_ + (position_ - count);
    }

    std::uint64_t number(std::size_t count, const char* what) { return little_endian(take(count, what), count); }

    std::string text(std::uint64_t length, std::uint64_t least, std::uint64_t most, const char* what) {
        need(least <= length && length <= most, std::string(what) + " has a length outside the limits");
        std::string text(reinterpret_cast<const char*>(take(length, what)), static_cast<std::size_t>(length));
        need(text.find('\0') == std::string::npos, std::string(what) + " holds a NUL byte");
        need(is_utf8(text), std::string(what) + " is not valid UTF-8");
        return text;
    }

private:
    const unsigned char* bytes_;
    std::uint64_t position_;
    std::uint64_t end_;
};

inline std::map<std::string, std::string> parse_metadata(Cursor& cursor, std::uint64_t count) {
    std::map<std::string, std::string> metadata;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t key_length = cursor.number(4, "metadata pair");
        const std::uint64_t value_length = cursor.number(4, "metadata pair");
        std::string key = cursor.text(key_length, 1, max_name, "metadata key");
        need(metadata.empty() || metadata.rbegin()->first < key, "metadata keys must be unique and in ascending order");
        std::string value = cursor.text(value_length, 0, max_value, "metadata value");
        metadata.emplace_hint(metadata.end(), std::move(key), std::move(value));
    }
    return metadata;
}

// The data length of a shape; sizes beside a zero must fit too.
inline std::uint64_t tensor_nbytes(const Tensor& tensor) {
    std::uint64_t nonzero = item_size(tensor.dtype);
    bool empty = false;
    for (const std::uint64_t size : tensor.shape) {
        empty = empty || size == 0;
        const std::uint64_t factor = size == 0 ? 1 : size;
        need(factor <= max_size / nonzero, "tensor " + tensor.name + " has a shape of more than 2^63 - 1 bytes");
        nonzero *= factor;
    }
    return empty ? 0 : nonzero;
}

// One directory entry. `end` is the end of what lies before the tensor.
inline Tensor parse_entry(Cursor& cursor, std::uint64_t end, std::uint64_t file_length) {
    Tensor tensor{};
    tensor.offset = cursor.number(8, "directory entry");
    tensor.nbytes = cursor.number(8, "directory entry");
    tensor.crc32 = static_cast<std::uint32_t>(cursor.number(4, "directory entry"));
    const std::uint64_t name_length = cursor.number(2, "directory entry");
    const std::uint64_t code = cursor.number(1, "directory entry");
    const std::uint64_t ndim = cursor.number(1, "directory entry");
    need(ndim <= max_ndim, "a tensor has " + std::to_string(ndim) + " dimensions, at most 8 are allowed");
    for (std::uint64_t i = 0; i < ndim; ++i) tensor.shape.push_back(cursor.number(8, "shape"));
    tensor.name = cursor.text(name_length, 1, max_name, "tensor name");
    need(1 <= code && code <= 10, "tensor " + tensor.name + " has unknown dtype code " + std::to_string(code));
    tensor.dtype = static_cast<DType>(code);
    need(tensor.nbytes == tensor_nbytes(tensor), "tensor " + tensor.name + " has a byte count that is not its shape's");
    need(tensor.offset == aligned(end), "tensor " + tensor.name + " is not at the next multiple of 64");
    need(tensor.offset <= file_length && tensor.nbytes <= file_length - tensor.offset,
         "tensor " + tensor.name + " goes past the end of the file");
    return tensor;
}

// The padding before a tensor, its CRC and its bool bytes.
inline void check_data(const Tensor& tensor, const unsigned char* bytes, std::uint64_t end) {
    const auto above = [](const unsigned char* first, std::uint64_t count, unsigned char limit) {
        return std::any_of(first, first + count, [limit](unsigned char byte) { return byte > limit; });
    };
    need(!above(bytes + end, tensor.offset - end, 0), "the padding before tensor " + tensor.name + " is not 0");
    need(crc32(tensor.data, tensor.nbytes) == tensor.crc32, "tensor " + tensor.name + " does not match its CRC-32");
    need(tensor.dtype != DType::b8 || !above(tensor.data, tensor.nbytes, 1),
         "tensor " + tensor.name + " is bool and has a byte other than 0 and 1");
}

}  // namespace detail

// Check a whole file and return views of its tensors. Time O(size), memory O(head).
inline File parse(const void* buffer, std::size_t size) {
    using detail::need;
    constexpr std::uint64_t header_length = 32, crc_length = 4;
    const auto* bytes = static_cast<const unsigned char*>(buffer);
    need(size >= header_length + crc_length, "the file is shorter than a header and a CRC");
    need(bytes[0] == 'K' && bytes[1] == 'D' && bytes[2] == 'T' && bytes[3] == 'R', "the magic is not KDTR");
    need(little_endian(bytes + 4, 4) == version, "the version is not 1");
    const std::uint64_t file_length = little_endian(bytes + 8, 8);
    const std::uint64_t head_length = little_endian(bytes + 16, 8);
    const std::uint64_t tensor_count = little_endian(bytes + 24, 4);
    const std::uint64_t metadata_count = little_endian(bytes + 28, 4);
    need(file_length == size && file_length <= max_size, "the header's file length is not the file's length");
    need(header_length + crc_length <= head_length && head_length <= file_length && head_length <= max_head,
         "the head length is outside its limits");
    need(tensor_count <= max_count && metadata_count <= max_count, "a count is above 65536");
    const std::uint64_t body_length = head_length - crc_length;
    need(crc32(bytes, body_length) == little_endian(bytes + body_length, 4), "the head does not match its CRC-32");

    File file;
    detail::Cursor cursor(bytes, header_length, body_length);
    file.metadata = detail::parse_metadata(cursor, metadata_count);
    std::set<std::string> names;
    std::uint64_t end = head_length;
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
        Tensor tensor = detail::parse_entry(cursor, end, file_length);
        need(names.insert(tensor.name).second, "tensor name " + tensor.name + " comes twice");
        tensor.data = bytes + tensor.offset;
        end = tensor.offset + tensor.nbytes;
        file.tensors.push_back(std::move(tensor));
    }
    need(cursor.left() == 0, "the head has bytes after its last entry");
    need(end == file_length, "the file has bytes after its last tensor");

    end = head_length;
    for (const Tensor& tensor : file.tensors) {
        detail::check_data(tensor, bytes, end);
        end = tensor.offset + tensor.nbytes;
    }
    return file;
}

}  // namespace kdtr

#endif
