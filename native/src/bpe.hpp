// BPE: merges in a segment, the best score first, then the leftmost.
//
// In: a segment. Out: ids. The library merges two neighbours when their text together is a piece; here each such pair of
// symbols is in a table with the rank of its score. Symbols are pieces and the characters that pieces are made of.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model.hpp"
#include "tokens.hpp"
#include "trie.hpp"

namespace tokpress {

class Bpe {
 public:
  struct Symbol {
    uint32_t symbol;  // kNoSymbol: it merges with nothing
    uint32_t begin, end;
    int32_t previous, next;
  };
  struct Candidate {
    uint64_t key;  // rank, then position: the least is merged first
    uint32_t merged;
    int32_t left, right;
    uint32_t end;  // of the right one when this was found: else it is out of date
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  Bpe() = default;
  explicit Bpe(const Model& model);

  void encode(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const;

 private:
  static constexpr uint32_t kNoSymbol = UINT32_MAX;
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr uint32_t kFew = 48;  // symbols that are looked through for the least rank; more have a heap

  struct Merge {
    uint32_t left, right;
    uint32_t rank, merged;
  };

  void add_merges(const Model& model, const std::unordered_map<std::string_view, uint32_t>& symbols,
                  const std::vector<uint32_t>& ranks);
  Merge find(uint32_t left, uint32_t right) const;
  uint32_t symbol_at(const uint8_t* text, uint32_t left, uint32_t& length, bool& frozen) const;
  void encode_few(const uint8_t* text, uint32_t size, Tokens& tokens) const;
  void encode_many(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const;
  void emit(const uint8_t* text, uint32_t size, uint32_t symbol, Tokens& tokens) const;

  const Model* model_ = nullptr;
  uint32_t pieces_ = 0;  // symbols below are pieces, others are characters that are none
  Trie characters_, user_symbols_;
  uint32_t ascii_[128];
  bool starts_symbol_[256] = {};
  HugeVector<Merge> merges_;  // an open table by hash
  uint64_t mask_ = 0;
};

}  // namespace tokpress
