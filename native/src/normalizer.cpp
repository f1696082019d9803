#include "normalizer.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "utf8.hpp"

namespace tokpress {

Normalizer::Normalizer(const Model& model, bool simd) {
  if (!model.charsmap.empty()) map_ = Charsmap(model.charsmap);
  prefix_ = model.add_dummy_prefix && !model.space_is_suffix;
  suffix_ = model.add_dummy_prefix && model.space_is_suffix;
  remove_spaces_ = model.remove_extra_spaces;
  copies_ = map_.empty() && !remove_spaces_;
#if defined(__x86_64__)
  simd_ = simd && __builtin_cpu_supports("avx2");
#endif
  std::vector<std::pair<std::string_view, uint32_t>> symbols;
  for (const Piece& piece : model.pieces) {
    if (piece.type != PieceType::user_defined) continue;
    symbols.emplace_back(piece.text, 0);
    starts_symbol_[static_cast<uint8_t>(piece.text[0])] = true;
  }
  user_symbols_ = Trie(std::move(symbols));
  for (uint8_t byte = 0; byte < 128; ++byte) {
    const uint32_t flags = map_.empty() ? 0 : map_.flags(byte);
    const std::string_view same(reinterpret_cast<const char*>(&byte), 1);
    const auto becomes = flags & Charsmap::kHasRule ? map_.replacement(flags & Charsmap::kRule) : same;
    classes_[byte] = becomes == " " ? kSpace : becomes == same ? kCopy : kOther;
    if (byte == 0 || starts_symbol_[byte] || (!map_.empty() && map_.ascii_pair(byte))) classes_[byte] = kOther;
    const auto bit = static_cast<uint8_t>(1u << (byte >> 4));
    if (classes_[byte] == kOther) other_rows_[byte & 15] |= bit;
    if (classes_[byte] == kSpace) space_rows_[byte & 15] |= bit;
  }
}

// What the text begins with: a user-defined symbol, which stays as it is, a rule, or a character. Returns its bytes.
size_t Normalizer::prefix(const uint8_t* text, size_t size, std::string_view& becomes) const {
  if (starts_symbol_[text[0]]) {
    uint32_t ignored;
    if (const size_t length = user_symbols_.longest(text, size, ignored)) {
      becomes = {reinterpret_cast<const char*>(text), length};
      return length;
    }
  }
  const Char first = decode(text);
  becomes = {reinterpret_cast<const char*>(text), first.size};
  if (map_.empty()) return first.size;
  const uint32_t flags = map_.flags(first.code);
  if (flags & Charsmap::kStartsLonger && first.size < size) {
    if (map_.flags(decode(text + first.size).code) & Charsmap::kSecond) {
      if (const size_t length = map_.longest(text, size, becomes)) return length;
      return first.size;
    }
  }
  if (flags & Charsmap::kHasRule) becomes = map_.replacement(flags & Charsmap::kRule);
  return first.size;
}

void Normalizer::run(const uint8_t* text, size_t size, Canonical& out) const {
  if (!copies_) return normalize<false>(text, size, out, nullptr);
  out.reserve(size + 2);
  out.set_size(0);
  if (!size) return;
  uint8_t* to = out.data();
  if (prefix_) *to++ = ' ';
  // Only U+2581 is written otherwise: it starts with E2, which is rare or not there at all.
  for (size_t i = 0; i < size;) {
    const auto* lead = static_cast<const uint8_t*>(std::memchr(text + i, 0xE2, size - i));
    const size_t end = lead ? static_cast<size_t>(lead - text) : size;
    std::memcpy(to, text + i, end - i);
    to += end - i;
    i = end;
    if (i == size) break;
    const bool space = text[i + 1] == 0x96 && text[i + 2] == 0x81;
    if (space) {
      *to++ = ' ';
    } else {
      std::memcpy(to, text + i, 3);
      to += 3;
    }
    i += 3;
  }
  if (suffix_) *to++ = ' ';
  out.set_size(static_cast<size_t>(to - out.data()));
}

void Normalizer::run(const uint8_t* text, size_t size, Canonical& out, std::vector<size_t>& origins) const {
  normalize<true>(text, size, out, &origins);
}

template <bool kTrack>
void Normalizer::normalize(const uint8_t* text, size_t size, Canonical& out, std::vector<size_t>* origins) const {
  if constexpr (kTrack) origins->clear();
  out.set_size(0);
  size_t i = 0;
  std::string_view becomes;
  while (remove_spaces_ && i < size) {
    const size_t length = prefix(text + i, size - i, becomes);
    if (becomes != " ") break;
    i += length;
  }
  if (i == size) return;
  size_t room = size + size / 2 + 64;
  out.reserve(room);
  uint8_t* to = out.data();
  const auto put = [&](uint8_t byte, size_t from) {
    *to++ = byte;
    if constexpr (kTrack) origins->push_back(from);
    (void)from;
  };
  if (prefix_) put(' ', i);
  bool after_space = remove_spaces_;
  while (i < size) {
    if constexpr (!kTrack) {
      if (text[i] < 128 && classes_[text[i]] != kOther) {
        const size_t done =
            simd_ ? ascii_avx2(text + i, size - i, to, after_space) : ascii(text + i, size - i, to, after_space);
        i += done;
        if (i == size) break;
      }
    }
    const size_t length = prefix(text + i, size - i, becomes);
    // There is always room for as many bytes as are left, and for what a block may write beyond them.
    const size_t used = static_cast<size_t>(to - out.data()), need = used + becomes.size() + (size - i) + 40;
    if (need > room) {
      room = need + need / 2;
      out.reserve(room);
      to = out.data() + used;
    }
    while (after_space && !becomes.empty() && becomes[0] == ' ') becomes.remove_prefix(1);
    if (!becomes.empty()) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(becomes.data());
      for (size_t k = 0; k < becomes.size();) {
        const bool space = bytes[k] == 0xE2 && k + 2 < becomes.size() && bytes[k + 1] == 0x96 && bytes[k + 2] == 0x81;
        put(space ? ' ' : bytes[k], i);
        k += space ? 3 : 1;
      }
      after_space = remove_spaces_ && becomes.back() == ' ';
    }
    i += length;
  }
  auto length = static_cast<size_t>(to - out.data());
  size_t consumed = size;
  while (remove_spaces_ && length && out.data()[length - 1] == ' ') {
    --length;
    if constexpr (kTrack) consumed = (*origins)[length];
  }
  if constexpr (kTrack) origins->resize(length);
  to = out.data() + length;
  if (suffix_) put(' ', consumed);
  if constexpr (kTrack) origins->push_back(consumed);
  out.set_size(static_cast<size_t>(to - out.data()));
}

// Characters that are copied or become spaces, up to one that needs a closer look or may belong to what comes after it.
size_t Normalizer::ascii(const uint8_t* text, size_t size, uint8_t*& to, bool& after_space) const {
  size_t i = 0;
  for (; i < size && text[i] < 128 && classes_[text[i]] != kOther; ++i) {
    if (i + 1 < size && text[i + 1] >= 128 && !map_.empty()) break;
    const bool space = classes_[text[i]] == kSpace;
    if (space && after_space) continue;
    *to++ = space ? ' ' : text[i];
    after_space = space && remove_spaces_;
  }
  return i;
}

#if defined(__x86_64__)
__attribute__((target("avx2,bmi,bmi2"))) size_t Normalizer::ascii_avx2(const uint8_t* text, size_t size, uint8_t*& to,
                                                                      bool& after_space) const {
  const __m256i other_rows = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(other_rows_)));
  const __m256i space_rows = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(space_rows_)));
  const __m256i bits = _mm256_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64,
                                        -128, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256i low = _mm256_set1_epi8(15), zero = _mm256_setzero_si256(), blank = _mm256_set1_epi8(' ');
  const bool pairs = !map_.empty();
  size_t i = 0;
  while (i + 33 <= size) {
    const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + i));
    const __m256i bit = _mm256_shuffle_epi8(bits, _mm256_and_si256(_mm256_srli_epi16(block, 4), low));
    const __m256i nibble = _mm256_and_si256(block, low);
    const __m256i is_other = _mm256_and_si256(_mm256_shuffle_epi8(other_rows, nibble), bit);
    const __m256i not_space = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(space_rows, nibble), bit), zero);
    const auto beyond = static_cast<uint32_t>(_mm256_movemask_epi8(block));  // not ASCII
    const uint32_t other = ~static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(is_other, zero))) | beyond;
    // A character before one that is not ASCII may make a rule with it.
    uint32_t stop = other | (pairs ? beyond >> 1 : 0);
    if (pairs && text[i + 32] >= 128) stop |= 1u << 31;
    const uint32_t count = stop ? _tzcnt_u32(stop) : 32;
    if (!count) break;
    const uint32_t within = _bzhi_u32(~0u, count);
    const uint32_t spaces = ~static_cast<uint32_t>(_mm256_movemask_epi8(not_space)) & within;
    const __m256i written = _mm256_blendv_epi8(blank, block, not_space);
    const uint32_t dropped = remove_spaces_ ? spaces & (spaces << 1 | static_cast<uint32_t>(after_space)) : 0;
    if (!dropped) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), written);
      to += count;
    } else {
      alignas(32) uint8_t bytes[64];
      _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), written);
      uint32_t kept = within & ~dropped;
      while (kept) {
        const uint32_t begin = _tzcnt_u32(kept);
        const uint32_t run = _tzcnt_u32(~(kept >> begin));  // 32 if all are kept
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + begin)));
        to += run;
        kept &= ~_bzhi_u32(~0u, begin + run);
      }
    }
    after_space = remove_spaces_ && (spaces >> (count - 1) & 1);
    i += count;
    if (count < 32) return i;
  }
  return i + ascii(text + i, size - i, to, after_space);
}
#else
size_t Normalizer::ascii_avx2(const uint8_t* text, size_t size, uint8_t*& to, bool& after_space) const {
  return ascii(text, size, to, after_space);
}
#endif

}  // namespace tokpress
