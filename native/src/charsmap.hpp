// The character map of a model: which characters become which text before pieces are looked up.
//
// In: the blob that SentencePiece compiles (a Darts double array, then zero-terminated strings). Out: the longest rule at a
// place of a text. All rules are gone through once, at load: a map whose array leads out of itself or in circles, or whose
// strings are no UTF-8, is refused; then most characters are answered by one look into a table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokpress {

class Charsmap {
 public:
  Charsmap() = default;
  explicit Charsmap(std::string_view blob);

  bool empty() const { return units_.empty(); }

  // What is known of a character: no rule begins with it; or this is its own rule; or longer rules begin with it, too.
  static constexpr uint32_t kHasRule = 1u << 31, kStartsLonger = 1u << 30, kSecond = 1u << 29, kRule = kSecond - 1;

  uint32_t flags(uint32_t code) const { return pages_[page_of_[code >> 8] << 8 | (code & 0xFF)]; }

  std::string_view replacement(uint32_t rule) const {
    return std::string_view(strings_).substr(rules_[rule].first, rules_[rule].second);
  }

  // The longest rule that the text begins with: its length in bytes, 0 if there is none, and what it becomes.
  size_t longest(const uint8_t* text, size_t size, std::string_view& becomes) const;

  // The same of the shortest rule, which is the one that `tokenizers` takes.
  size_t shortest(const uint8_t* text, size_t size, std::string_view& becomes) const;

  // Is there a rule of this ASCII character and an ASCII character after it?
  bool ascii_pair(uint8_t first) const { return ascii_pairs_[first]; }

 private:
  size_t match(const uint8_t* text, size_t size, std::string_view& becomes, bool first) const;
  void add_rule(const std::string& key, uint32_t value);
  uint32_t& slot(uint32_t code);

  std::vector<uint32_t> units_;
  std::string strings_;
  std::vector<std::pair<uint32_t, uint32_t>> rules_;  // start and size in strings_
  std::vector<uint16_t> page_of_;
  std::vector<uint32_t> pages_;
  bool ascii_pairs_[128] = {};
};

}  // namespace tokpress
