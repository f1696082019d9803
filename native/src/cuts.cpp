#include "cuts.hpp"

#include <algorithm>
#include <cstring>

namespace tokpress {

Cuts::Cuts(const Model& model) : ascii_(128 * 128, 1), words_(model.json.used) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (const Piece& piece : model.pieces) {
    if (!piece.matches_text()) continue;
    const auto* text = reinterpret_cast<const uint8_t*>(piece.canonical.data());
    Char a = decode(text);
    for (size_t i = a.size; i < piece.canonical.size();) {
      const Char b = decode(text + i);
      if (a.code < 128 && b.code < 128) {
        ascii_[a.code * 128 + b.code] = 0;
      } else {
        pairs.emplace_back(a.code, b.code);
      }
      a = b;
      i += b.size;
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  unsigned log = 14;
  while (log < 25 && (size_t{1} << log) < pairs.size() * 24) ++log;
  filter_.assign(size_t{1} << (log - 6), 0);
  shift_ = 64 - log;
  for (const auto& [a, b] : pairs) {
    const uint64_t bit = hash(a, b) >> shift_;
    filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
  }
}

uint64_t Cuts::find_ascii(const uint8_t* text) const {
  uint64_t cuts = 0;
  for (unsigned i = 0; i < 64; ++i) {
    cuts |= static_cast<uint64_t>(ascii_[text[static_cast<int>(i) - 1] * 128u + text[i]]) << i;
  }
  return cuts;
}

uint64_t Cuts::find(const uint8_t* text, size_t at, size_t size, uint32_t& previous) const {
  const size_t end = std::min(at + 64, size);
  if (words_) {
    uint64_t spaces = 0;
    for (size_t i = at; i < end; ++i) spaces |= static_cast<uint64_t>(text[i] == ' ') << (i - at);
    return spaces;
  }
  if (end - at == 64 && previous < 128) {
    uint64_t words[8];
    std::memcpy(words, text + at, 64);
    const uint64_t all = words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7];
    if (!(all & 0x8080808080808080u) && at) {
      previous = text[end - 1];
      return find_ascii(text + at);
    }
  }
  uint64_t cuts = 0;
  size_t i = at;
  while (i < end && !is_start(text[i])) ++i;  // of a character that began in the block before
  while (i < end) {
    const Char b = decode(text + i);
    const bool cut = (previous | b.code) < 128 ? ascii_[previous * 128 + b.code] : !joined(previous, b.code);
    cuts |= static_cast<uint64_t>(cut) << (i - at);
    previous = b.code;
    i += b.size;
  }
  return cuts;
}

}  // namespace tokpress
