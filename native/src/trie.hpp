// A trie of byte strings, four bytes a node: a double array.
//
// In: strings with a number each. Out: steps from node to node along a text. A child's place is its parent's base XOR its
// byte; no two parents have the same base, so the byte kept in the child is enough to tell whose child it is.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "memory.hpp"

namespace tokpress {

class Trie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;

  Trie() = default;
  explicit Trie(std::vector<std::pair<std::string_view, uint32_t>> strings);  // no NUL, none twice, none empty

  bool empty() const { return values_.empty(); }
  size_t size() const { return units_.size(); }

  // The child by this byte (never 0), or false.
  bool step(uint32_t& node, uint8_t byte) const {
    const uint32_t child = (units_[node] >> kBaseShift) ^ byte;
    const uint32_t unit = units_[child];
    node = child;
    return (unit & 0xFF) == byte;
  }
  bool has_value(uint32_t node) const { return units_[node] & kHasValue; }
  uint32_t value(uint32_t node) const { return values_[node]; }

  // Length of the longest string that the text begins with, and its number; 0 if there is none.
  size_t longest(const uint8_t* text, size_t size, uint32_t& value) const;

 private:
  static constexpr uint32_t kHasValue = 0x100;
  static constexpr unsigned kBaseShift = 9;

  struct Builder;

  HugeVector<uint32_t> units_;   // base << 9 | has a value << 8 | byte; always whole blocks of 256: a step stays inside
  HugeVector<uint32_t> values_;  // by node
};

}  // namespace tokpress
