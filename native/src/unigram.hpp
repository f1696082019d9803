// Unigram: the best path through a segment.
//
// In: a segment and the score of the text before it. Out: ids. The library adds scores in 32-bit floats over the whole text,
// so which of two close paths wins depends on the score so far. `settle` finds the best path and how far ahead of the second
// it is, and from that the score up to which rounding cannot turn them around (README, "Why a kept answer stands");
// `follow` does what the library does, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"
#include "tokens.hpp"
#include "trie.hpp"

namespace tokpress {

class Unigram {
 public:
  static constexpr float kReset = 1e5f;  // beyond it the library takes the score away from all open positions

  // Kept between calls, so that a segment needs no memory of its own.
  struct Scratch {
    std::vector<double> best, second;
    std::vector<float> score;
    std::vector<uint32_t> from, node;
  };

  Unigram() = default;
  explicit Unigram(const Model& model);

  // Ids by exact scores; returns the limit: they are the library's if the score before the segment is nearer to 0 than it.
  float settle(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const;

  // Ids as the library finds them from this score on, and the score after them.
  float follow(const uint8_t* text, uint32_t size, float score, Scratch& scratch, Tokens& tokens) const;

  // Ids as `tokenizers` finds them in a word: sums of doubles that begin at 0, so nothing before it matters.
  void follow_double(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const;

 private:
  template <class Real>
  Real recur(const uint8_t* text, uint32_t size, Real score, std::vector<Real>& kept, const HugeVector<Real>& added, Real unknown,
             Scratch& scratch) const;
  void trace(const uint8_t* text, uint32_t size, const Scratch& scratch, Tokens& tokens) const;

  const Model* model_ = nullptr;
  Trie trie_;
  HugeVector<float> scores_;  // by node of the trie
  HugeVector<double> doubles_;  // the same for a `tokenizer.json`
  float unknown_score_ = 0;
  double unknown_double_ = 0;
};

}  // namespace tokpress
