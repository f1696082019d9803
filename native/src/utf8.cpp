#include "utf8.hpp"

#include <cstring>

namespace tokpress {

size_t first_invalid(const uint8_t* text, size_t size) {
  size_t i = 0;
  while (i < size) {
    if (text[i] < 0x80) {
      uint64_t words[4];
      while (i + 32 <= size) {
        std::memcpy(words, text + i, 32);
        if ((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) break;
        i += 32;
      }
      while (i < size && text[i] < 0x80) ++i;
      continue;
    }
    const uint8_t lead = text[i];
    const size_t left = size - i;
    const auto follows = [&](size_t at, uint8_t low, uint8_t high) {
      return at < left && text[i + at] >= low && text[i + at] <= high;
    };
    if (lead >= 0xC2 && lead <= 0xDF) {
      if (!follows(1, 0x80, 0xBF)) return i;
      i += 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;  // overlong, surrogates
      if (!follows(1, low, high) || !follows(2, 0x80, 0xBF)) return i;
      i += 3;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      const uint8_t low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
      if (!follows(1, low, high) || !follows(2, 0x80, 0xBF) || !follows(3, 0x80, 0xBF)) return i;
      i += 4;
    } else {
      return i;
    }
  }
  return size;
}

}  // namespace tokpress
