#include "bpe.hpp"

#include <algorithm>
#include <cstring>

#include "utf8.hpp"

namespace tokpress {
namespace {

// Floats in the library's order, as numbers: -0 stands below 0.
uint32_t ordered(float score) {
  uint32_t bits;
  std::memcpy(&bits, &score, 4);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

uint64_t hash_of(uint32_t left, uint32_t right) {
  const uint64_t key = (static_cast<uint64_t>(left) << 32 | right) * 0x9E3779B97F4A7C15u;
  return key ^ key >> 32;
}

// Equal scores share a rank; the highest score has rank 0.
std::vector<uint32_t> rank(const Model& model) {
  std::vector<uint32_t> order;
  for (const Piece& piece : model.pieces) order.push_back(ordered(piece.score));
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (uint32_t& value : order) {
    value = static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), value, std::greater<>()) - sorted.begin());
  }
  return order;
}

}  // namespace

Bpe::Bpe(const Model& model) : model_(&model), pieces_(static_cast<uint32_t>(model.pieces.size())) {
  std::unordered_map<std::string_view, uint32_t> symbols;  // text -> symbol
  std::vector<std::pair<std::string_view, uint32_t>> characters, user_symbols;
  for (uint32_t id = 0; id < pieces_; ++id) {
    const Piece& piece = model.pieces[id];
    if (!piece.matches_text()) continue;
    symbols.emplace(piece.canonical, id);
    if (piece.type == PieceType::user_defined) {
      user_symbols.emplace_back(piece.canonical, id);
      starts_symbol_[static_cast<uint8_t>(piece.canonical[0])] = true;
    }
  }
  for (const Piece& piece : model.pieces) {
    if (!piece.matches_text()) continue;
    const std::string_view text = piece.canonical;
    for (size_t i = 0; i < text.size();) {
      const std::string_view one = text.substr(i, char_size(static_cast<uint8_t>(text[i])));
      const auto next = static_cast<uint32_t>(pieces_ + symbols.size());  // beyond all ids, and new each time
      const auto [at, added] = symbols.emplace(one, next);
      if (added || at->second < pieces_) characters.emplace_back(one, at->second);
      i += one.size();
    }
  }
  std::sort(characters.begin(), characters.end());
  characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  std::fill(std::begin(ascii_), std::end(ascii_), kNoSymbol);
  for (const auto& [one, symbol] : characters) {
    if (one.size() == 1) ascii_[static_cast<uint8_t>(one[0])] = symbol;
  }
  add_merges(model, symbols, rank(model));
  characters_ = Trie(std::move(characters));
  user_symbols_ = Trie(std::move(user_symbols));
}

void Bpe::add_merges(const Model& model, const std::unordered_map<std::string_view, uint32_t>& symbols,
                     const std::vector<uint32_t>& ranks) {
  std::vector<Merge> found;
  for (uint32_t id = 0; id < pieces_; ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != PieceType::normal) continue;  // no two free symbols together are a user-defined one
    const std::string_view text = piece.canonical;
    for (size_t i = 1; i < text.size(); ++i) {
      if (!is_start(static_cast<uint8_t>(text[i]))) continue;
      const auto left = symbols.find(text.substr(0, i)), right = symbols.find(text.substr(i));
      if (left == symbols.end() || right == symbols.end()) continue;
      found.push_back({left->second, right->second, ranks[id], id});
    }
  }
  size_t size = 64;
  while (size < found.size() * 2) size *= 2;
  mask_ = size - 1;
  merges_.assign(size, {kNoSymbol, kNoSymbol, kNoRank, kNoSymbol});
  for (const Merge& merge : found) {
    uint64_t at = hash_of(merge.left, merge.right) & mask_;
    while (merges_[at].rank != kNoRank) at = (at + 1) & mask_;
    merges_[at] = merge;
  }
}

Bpe::Merge Bpe::find(uint32_t left, uint32_t right) const {
  if (left == kNoSymbol || right == kNoSymbol) return {left, right, kNoRank, kNoSymbol};
  for (uint64_t at = hash_of(left, right) & mask_;; at = (at + 1) & mask_) {
    const Merge& merge = merges_[at];
    if (merge.rank == kNoRank || (merge.left == left && merge.right == right)) return merge;
  }
}

// The symbol that the text begins with. A user-defined one is frozen: it merges with nothing.
uint32_t Bpe::symbol_at(const uint8_t* text, uint32_t left, uint32_t& length, bool& frozen) const {
  uint32_t symbol = kNoSymbol;
  frozen = false;
  if (starts_symbol_[*text]) {
    if (const size_t longest = user_symbols_.longest(text, left, symbol)) {
      length = static_cast<uint32_t>(longest);
      frozen = true;
      return symbol;
    }
  }
  length = char_size(*text);
  if (*text < 128) return ascii_[*text];
  characters_.longest(text, length, symbol);
  return symbol;
}

void Bpe::encode(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const {
  tokens.clear();
  if (size <= kFew) return encode_few(text, size, tokens);
  encode_many(text, size, scratch, tokens);
}

void Bpe::encode_few(const uint8_t* text, uint32_t size, Tokens& tokens) const {
  uint32_t symbols[kFew + 1], ends[kFew + 1], ranks[kFew + 1], merged[kFew + 1];
  bool frozen[kFew + 1];
  uint32_t count = 0;
  for (uint32_t at = 0; at < size; ++count) {
    uint32_t length;
    symbols[count] = symbol_at(text + at, size - at, length, frozen[count]);
    ends[count] = at += length;
  }
  const auto look = [&](uint32_t i) {  // at the pair of i and its right neighbour
    const Merge merge =
        frozen[i] || frozen[i + 1] ? Merge{0, 0, kNoRank, kNoSymbol} : find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    merged[i] = merge.merged;
  };
  for (uint32_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    uint32_t least = 0;
    for (uint32_t i = 1; i + 1 < count; ++i) least = ranks[i] < ranks[least] ? i : least;
    if (ranks[least] == kNoRank) break;
    symbols[least] = merged[least];
    --count;
    for (uint32_t i = least; i < count; ++i) ends[i] = ends[i + 1];
    for (uint32_t i = least + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      frozen[i] = frozen[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    if (least + 1 < count) look(least);
    if (least) look(least - 1);
  }
  for (uint32_t i = 0, begin = 0; i < count; begin = ends[i++]) {
    emit(text + begin, ends[i] - begin, symbols[i], tokens);
  }
}

void Bpe::encode_many(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  std::vector<bool> frozen_at;
  for (uint32_t at = 0; at < size;) {
    uint32_t length;
    bool frozen;
    const uint32_t symbol = symbol_at(text + at, size - at, length, frozen);
    const auto i = static_cast<int32_t>(symbols.size());
    symbols.push_back({symbol, at, at + length, i - 1, i + 1});
    frozen_at.push_back(frozen);
    at += length;
  }
  symbols.back().next = -1;
  const auto later = [](const Candidate& a, const Candidate& b) { return a.key > b.key; };
  const auto look = [&](int32_t left, int32_t right, bool push) {
    if (left < 0 || right < 0 || frozen_at[left] || frozen_at[right]) return;
    const Merge merge = find(symbols[left].symbol, symbols[right].symbol);
    if (merge.rank == kNoRank) return;
    heap.push_back({static_cast<uint64_t>(merge.rank) << 32 | static_cast<uint32_t>(left), merge.merged, left, right,
                    symbols[right].end});
    if (push) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) look(i, i + 1, false);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.left];
    Symbol& right = symbols[top.right];
    // A symbol that was merged into its left neighbour is empty.
    if (left.begin == left.end || left.next != top.right || right.end != top.end) continue;
    left.symbol = top.merged;
    left.end = right.end;
    left.next = right.next;
    right.begin = right.end;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    look(left.previous, top.left, true);
    look(top.left, left.next, true);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    emit(text + symbols[i].begin, symbols[i].end - symbols[i].begin, symbols[i].symbol, tokens);
  }
}

void Bpe::emit(const uint8_t* text, uint32_t size, uint32_t symbol, Tokens& tokens) const {
  if (symbol < pieces_) return tokens.add(symbol, 0);
  tokens.add_unknown(*model_, text, size, 0);
}

}  // namespace tokpress
