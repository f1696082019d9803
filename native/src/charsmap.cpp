#include "charsmap.hpp"

#include <cstring>

#include "model.hpp"
#include "utf8.hpp"

namespace tokpress {
namespace {

constexpr size_t kMaxRuleBytes = 64;
constexpr size_t kMaxPaths = size_t{1} << 19;  // nodes are shared: nfkc has 45,000 units and 263,000 paths
constexpr size_t kMaxNested = 32;  // rules that are prefixes of one another: the library looks at no more

// A unit of Darts' double array.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

[[noreturn]] void refuse() { throw Refused("the character map is not sound"); }

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  uint32_t size = 0;
  if (blob.size() <= 4) refuse();
  std::memcpy(&size, blob.data(), 4);
  if (size >= blob.size() - 4 || size < 1024 || size % 1024 != 0) refuse();
  units_.resize(size / 4);
  std::memcpy(units_.data(), blob.data() + 4, size);
  strings_ = blob.substr(4 + size);
  if (strings_.empty() || strings_.back() != '\0') refuse();
  page_of_.assign(0x110000 >> 8, 0);
  pages_.assign(256, 0);

  struct Place {
    uint32_t base;  // where the children of this node are, XOR their byte
    size_t depth, nested;
    uint8_t byte;
  };
  std::vector<Place> todo{{offset_of(units_[0]), 0, 0, 0}};
  std::string key;
  size_t visited = 0;
  while (!todo.empty()) {
    const Place place = todo.back();
    todo.pop_back();
    if (++visited > kMaxPaths || place.depth > kMaxRuleBytes || place.nested > kMaxNested) refuse();
    if (place.depth) key.resize(place.depth), key[place.depth - 1] = static_cast<char>(place.byte);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t child = place.base ^ byte;
      if (child >= units_.size() || label_of(units_[child]) != byte) continue;
      const uint32_t base = child ^ offset_of(units_[child]);
      const bool leaf = has_leaf(units_[child]);
      if (leaf) {
        if (base >= units_.size()) refuse();
        key.resize(place.depth);
        key += static_cast<char>(byte);
        add_rule(key, value_of(units_[base]));
      }
      todo.push_back({base, place.depth + 1, place.nested + leaf, static_cast<uint8_t>(byte)});
    }
  }
}

uint32_t& Charsmap::slot(uint32_t code) {
  uint16_t& page = page_of_[code >> 8];
  if (page == 0) {
    page = static_cast<uint16_t>(pages_.size() >> 8);
    pages_.resize(pages_.size() + 256, 0);
  }
  return pages_[static_cast<size_t>(page) << 8 | (code & 0xFF)];
}

void Charsmap::add_rule(const std::string& key, uint32_t value) {
  if (value >= strings_.size() || !is_valid(key)) refuse();
  const std::string_view becomes = strings_.c_str() + value;
  if (!is_valid(becomes) || rules_.size() >= kRule) refuse();
  const auto* bytes = reinterpret_cast<const uint8_t*>(key.data());
  const Char first = decode(bytes);
  if (first.size == key.size()) {
    slot(first.code) |= kHasRule | static_cast<uint32_t>(rules_.size());
    rules_.emplace_back(value, static_cast<uint32_t>(becomes.size()));
    return;
  }
  slot(first.code) |= kStartsLonger;
  const Char second = decode(bytes + first.size);
  slot(second.code) |= kSecond;
  if (first.code < 128 && second.code < 128) ascii_pairs_[first.code] = true;
}

size_t Charsmap::longest(const uint8_t* text, size_t size, std::string_view& becomes) const {
  return match(text, size, becomes, false);
}

size_t Charsmap::shortest(const uint8_t* text, size_t size, std::string_view& becomes) const {
  return match(text, size, becomes, true);
}

size_t Charsmap::match(const uint8_t* text, size_t size, std::string_view& becomes, bool first) const {
  size_t length = 0;
  uint32_t value = 0;
  uint32_t at = offset_of(units_[0]);
  for (size_t i = 0; i < size; ++i) {
    at ^= text[i];
    if (at >= units_.size() || label_of(units_[at]) != text[i]) break;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (has_leaf(unit)) {
      if (at >= units_.size()) break;
      length = i + 1;
      value = value_of(units_[at]);
      if (first) break;
    }
  }
  if (length && value < strings_.size()) becomes = strings_.c_str() + value;
  return length;
}

}  // namespace tokpress
