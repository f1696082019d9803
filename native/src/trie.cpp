#include "trie.hpp"

#include <algorithm>

#include "model.hpp"

namespace tokpress {

// Places the children of one node after another, depth first.
struct Trie::Builder {
  using Strings = std::vector<std::pair<std::string_view, uint32_t>>;

  Trie& trie;
  const Strings& strings;
  std::vector<bool> taken, base_used;
  uint32_t first_free = 1;  // no node below it is free

  void grow(size_t size) {
    const size_t blocks = (size + 255) / 256 * 256;
    if (blocks <= taken.size()) return;
    if (blocks > 1u << 23) throw Refused("the pieces need too large a trie");
    trie.units_.resize(blocks, 0);
    trie.values_.resize(blocks, kNone);
    taken.resize(blocks, false);
    base_used.resize(blocks, false);
  }

  // Where all these bytes fit.
  uint32_t find_base(const std::vector<uint8_t>& bytes) {
    while (first_free < taken.size() && taken[first_free]) ++first_free;
    uint32_t tries = 0;
    for (uint32_t place = first_free;; ++place) {
      grow(place + 256);
      if (taken[place]) continue;
      const uint32_t base = place ^ bytes[0];
      if (!base_used[base] &&
          std::none_of(bytes.begin(), bytes.end(), [&](uint8_t byte) { return taken[base ^ byte]; })) {
        return base;
      }
      if (++tries == 256 && bytes.size() == 1) first_free = place;  // crowded: look further on from now on
      if (tries == 4096) first_free = place;
    }
  }

  // The strings [begin, end) share their first `depth` bytes, which lead to `node`.
  void place(uint32_t node, size_t begin, size_t end, size_t depth) {
    struct Task {
      uint32_t node;
      size_t begin, end, depth;
    };
    std::vector<Task> tasks{{node, begin, end, depth}};
    std::vector<uint8_t> bytes;
    std::vector<size_t> bounds;
    while (!tasks.empty()) {
      Task task = tasks.back();
      tasks.pop_back();
      if (strings[task.begin].first.size() == task.depth) {
        trie.units_[task.node] |= kHasValue;
        trie.values_[task.node] = strings[task.begin].second;
        if (++task.begin == task.end) continue;
      }
      bytes.clear();
      bounds.clear();
      for (size_t i = task.begin; i < task.end; ++i) {
        const auto byte = static_cast<uint8_t>(strings[i].first[task.depth]);
        if (bytes.empty() || bytes.back() != byte) {
          bytes.push_back(byte);
          bounds.push_back(i);
        }
      }
      bounds.push_back(task.end);
      const uint32_t base = find_base(bytes);
      base_used[base] = true;
      trie.units_[task.node] |= base << kBaseShift;
      for (size_t i = 0; i < bytes.size(); ++i) {
        taken[base ^ bytes[i]] = true;
        trie.units_[base ^ bytes[i]] |= bytes[i];
        tasks.push_back({base ^ bytes[i], bounds[i], bounds[i + 1], task.depth + 1});
      }
    }
  }
};

Trie::Trie(std::vector<std::pair<std::string_view, uint32_t>> strings) {
  if (strings.empty()) return;
  std::sort(strings.begin(), strings.end());
  Builder builder{*this, strings, {}, {}};
  builder.grow(256);
  builder.taken[kRoot] = true;
  builder.base_used[0] = true;  // that of leaves, whose units have none
  builder.place(kRoot, 0, strings.size(), 0);
}

size_t Trie::longest(const uint8_t* text, size_t size, uint32_t& value) const {
  if (empty()) return 0;
  size_t length = 0;
  uint32_t node = kRoot;
  for (size_t i = 0; i < size && text[i] != 0 && step(node, text[i]); ++i) {
    if (has_value(node)) {
      length = i + 1;
      value = values_[node];
    }
  }
  return length;
}

}  // namespace tokpress
