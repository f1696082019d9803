// Where canonical text may be cut into segments that are encoded alone.
//
// In: the pieces of a model. Out: for 64 bytes of text, the places between two characters a and b where no piece holds a
// directly followed by b. Nothing spans such a place: a merge or an edge across it would be a piece that holds "ab", and an
// unknown is one character. A cut too few does no harm, so a filter that sometimes says "there is one" will do.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "model.hpp"
#include "utf8.hpp"

namespace tokpress {

class Cuts {
 public:
  Cuts() = default;
  explicit Cuts(const Model& model);

  // Bit i: text may be cut before byte `at + i`. `previous` is the character before `at`, and is carried on.
  uint64_t find(const uint8_t* text, size_t at, size_t size, uint32_t& previous) const;

 private:
  uint64_t find_ascii(const uint8_t* text) const;

  bool joined(uint32_t a, uint32_t b) const {
    const uint64_t bit = hash(a, b) >> shift_;
    return filter_[bit >> 6] >> (bit & 63) & 1;
  }
  static uint64_t hash(uint32_t a, uint32_t b) {
    return ((static_cast<uint64_t>(a) << 21 | b) + 1) * 0x9E3779B97F4A7C15u;
  }

  std::vector<uint8_t> ascii_;  // 128 x 128: 1 where text may be cut
  HugeVector<uint64_t> filter_;
  unsigned shift_ = 63;
  bool words_ = false;  // cut before spaces, nowhere else
};

}  // namespace tokpress
