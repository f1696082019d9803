// Text -> canonical text: what the pieces of a model are looked up in.
//
// In: valid UTF-8. Out: the library's normalised text with each U+2581 as one 0x20: characters replaced by the model's map,
// a space put before it (or after), spaces removed. On request also the byte of the text that each canonical byte comes from.
#pragma once

#include <cstdint>
#include <vector>

#include "charsmap.hpp"
#include "model.hpp"
#include "trie.hpp"

namespace tokpress {

// Canonical text, with room on both sides so that whole words can be read anywhere in it.
class Canonical {
 public:
  static constexpr size_t kMargin = 64;

  const uint8_t* data() const { return bytes_.data() + kMargin; }
  uint8_t* data() { return bytes_.data() + kMargin; }
  size_t size() const { return size_; }
  void set_size(size_t size) { size_ = size; }

  // Room for so many bytes; what is there so far stays.
  void reserve(size_t size) {
    if (bytes_.size() < size + 2 * kMargin) bytes_.resize((size + size / 4) + 2 * kMargin);
  }
  // Text that was far longer than most does not hold its memory for ever.
  void shrink(size_t most) {
    if (bytes_.size() > most) std::vector<uint8_t>().swap(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(2 * kMargin);
  size_t size_ = 0;
};

class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Model& model, bool simd);

  void run(const uint8_t* text, size_t size, Canonical& out) const;

  // The same, with the byte that each canonical byte comes from, and where the text was read up to.
  void run(const uint8_t* text, size_t size, Canonical& out, std::vector<size_t>& origins) const;

 private:
  enum Class : uint8_t { kCopy, kSpace, kOther };  // of an ASCII character: what the quick path does with it

  template <bool kTrack>
  void normalize(const uint8_t* text, size_t size, Canonical& out, std::vector<size_t>* origins) const;
  size_t prefix(const uint8_t* text, size_t size, std::string_view& becomes) const;
  size_t ascii(const uint8_t* text, size_t size, uint8_t*& to, bool& after_space) const;
  size_t ascii_avx2(const uint8_t* text, size_t size, uint8_t*& to, bool& after_space) const;

  Charsmap map_;
  Trie user_symbols_;
  bool starts_symbol_[256] = {};
  Class classes_[128] = {};
  alignas(16) uint8_t other_rows_[16] = {}, space_rows_[16] = {};  // the classes as sets: bit `high nibble` of row `low nibble`
  bool prefix_ = false, suffix_ = false, remove_spaces_ = false, copies_ = false, simd_ = false;
};

}  // namespace tokpress
