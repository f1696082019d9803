// Which characters belong together, as far as a character map of `tokenizers` has to know it.
//
// `tokenizers` looks up grapheme clusters of fewer than six bytes as a whole. In: a code point. Out: does it join the character
// before it (marks, joiners), may a character join it at all (controls do not let it), does it join the character after it.
// The tables are those of `tokenizers` 0.23, asked for every code point; tests/native/test_graphemes.py asks again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tokpress {

class Graphemes {
 public:
  Graphemes();

  bool joins(uint32_t code) const { return joins_[code >> 6] >> (code & 63) & 1; }
  bool is_base(uint32_t code) const { return !(controls_[code >> 6] >> (code & 63) & 1); }
  bool prepends(uint32_t code) const { return prepends_[code >> 6] >> (code & 63) & 1; }

 private:
  std::vector<uint64_t> joins_, controls_, prepends_;
};

}  // namespace tokpress
