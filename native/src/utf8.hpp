// UTF-8: validation and decoding.
//
// In: bytes. Out: code points and lengths. `decode` trusts its input: it is called on text that `first_invalid` has passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tokpress {

struct Char {
  uint32_t code;
  uint32_t size;  // bytes
};

inline bool is_start(uint8_t byte) { return (byte & 0xC0) != 0x80; }

inline uint32_t char_size(uint8_t lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

inline Char decode(const uint8_t* p) {
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {(p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  if (p[0] < 0xF0) return {(p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3};
  return {(p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4};
}

// Index of the first byte that is no part of valid UTF-8 (RFC 3629), or `size`.
size_t first_invalid(const uint8_t* text, size_t size);

inline bool is_valid(std::string_view text) {
  return first_invalid(reinterpret_cast<const uint8_t*>(text.data()), text.size()) == text.size();
}

}  // namespace tokpress
