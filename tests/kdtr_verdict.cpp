// Reads records from standard input (u64 little-endian length, then that many bytes) and prints one line for each:
// "refused", or "good" and all that the file says. Every record lies at an odd address in a block of its exact size.
#include <cstdio>
#include <memory>
#include <string>

#include "kdtr.h"

static std::string hex(const std::string& text) {
    std::string digits;
    for (const char character : text) {
        const auto byte = static_cast<unsigned char>(character);
        digits += "0123456789abcdef"[byte >> 4];
        digits += "0123456789abcdef"[byte & 15];
    }
    return digits;
}

static std::string verdict(const unsigned char* bytes, std::size_t size) {
    try {
        const kdtr::File file = kdtr::parse(bytes, size);
        std::string line = "good";
        for (const kdtr::Tensor& tensor : file.tensors) {
            line += " " + hex(tensor.name) + ":" + std::to_string(static_cast<int>(tensor.dtype)) + ":";
            for (std::size_t i = 0; i < tensor.shape.size(); ++i) line += (i ? "x" : "") + std::to_string(tensor.shape[i]);
            line += ":" + std::to_string(tensor.offset) + ":" + std::to_string(tensor.nbytes);
            line += ":" + std::to_string(kdtr::crc32(tensor.data, tensor.nbytes));
            if (&file.at(tensor.name) != &tensor) return "at() found another tensor";
        }
        for (const auto& [key, value] : file.metadata) line += " " + hex(key) + "=" + hex(value);
        return line;
    } catch (const kdtr::Error&) {
        return "refused";
    }
}

int main() {
    unsigned char prefix[8];
    while (std::fread(prefix, 1, 8, stdin) == 8) {
        const auto size = static_cast<std::size_t>(kdtr::little_endian(prefix, 8));
        const std::unique_ptr<unsigned char[]> block(new unsigned char[size + 1]);
        if (std::fread(block.get() + 1, 1, size, stdin) != size) return 1;
        std::puts(verdict(block.get() + 1, size).c_str());
        std::fflush(stdout);
    }
}
