#include "unigram.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <type_traits>

#include "utf8.hpp"

namespace tokpress {
namespace {

constexpr uint32_t kNowhere = UINT32_MAX;
constexpr uint32_t kUnknown = UINT32_MAX;  // in place of a node
constexpr float kUnknownPenalty = 10;
constexpr double kNever = -std::numeric_limits<double>::infinity();

template <class T>
void grow(std::vector<T>& values, size_t size) {
  if (values.size() < size) values.resize(size + size / 2);
}

}  // namespace

Unigram::Unigram(const Model& model) : model_(&model) {
  std::vector<std::pair<std::string_view, uint32_t>> strings;
  float least = FLT_MAX;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type == PieceType::normal) least = std::min(least, piece.score);
    if (piece.type == PieceType::normal || piece.type == PieceType::user_defined) strings.emplace_back(piece.canonical, id);
  }
  unknown_score_ = least - kUnknownPenalty;
  trie_ = Trie(std::move(strings));
  scores_.resize(trie_.size());
  for (uint32_t node = 0; node < trie_.size(); ++node) {
    if (!trie_.has_value(node)) continue;
    const Piece& piece = model.pieces[trie_.value(node)];
    const int length = static_cast<int>(piece.text.size());
    scores_[node] = piece.type == PieceType::user_defined ? static_cast<float>(0.1 * (length - 1)) : piece.score;
  }
  if (!model.json.used) return;
  unknown_double_ = *std::min_element(model.scores.begin(), model.scores.end()) - kUnknownPenalty;
  doubles_.resize(trie_.size());
  for (uint32_t node = 0; node < trie_.size(); ++node) {
    if (trie_.has_value(node)) doubles_[node] = model.scores[trie_.value(node)];
  }
}

float Unigram::settle(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const {
  grow(scratch.best, size + 1);
  grow(scratch.second, size + 1);
  grow(scratch.from, size + 1);
  grow(scratch.node, size + 1);
  double* const best = scratch.best.data();
  double* const second = scratch.second.data();
  uint32_t* const from = scratch.from.data();
  uint32_t* const nodes = scratch.node.data();
  std::fill(best, best + size + 1, kNever);
  std::fill(second, second + size + 1, kNever);
  best[0] = 0;
  uint32_t chars = 0;
  double lowest = 0;
  bool positive = false;
  for (uint32_t at = 0; at < size;) {
    const uint32_t width = char_size(text[at]);
    const double here = best[at], here_second = second[at];
    lowest = std::min(lowest, here);
    bool single = false;
    const auto reach = [&](uint32_t end, double score, uint32_t node) {
      const double sum = here + score;
      if (sum > best[end]) {
        second[end] = std::max(best[end], here_second + score);
        best[end] = sum;
        from[end] = at;
        nodes[end] = node;
      } else {
        second[end] = std::max(second[end], sum);
      }
    };
    uint32_t node = Trie::kRoot;
    for (uint32_t end = at; end < size && text[end] && trie_.step(node, text[end]);) {
      ++end;
      if (!trie_.has_value(node)) continue;
      single |= end - at == width;
      positive |= scores_[node] > 0;
      reach(end, scores_[node], node);
    }
    if (!single) {
      positive |= unknown_score_ > 0;
      reach(at + width, unknown_score_, kUnknown);
    }
    at += width;
    ++chars;
  }
  lowest = std::min(lowest, best[size]);
  trace(text, size, scratch, tokens);
  if (positive) return 0;
  uint32_t steps = 0;
  for (uint32_t end = size; end > 0; end = from[end]) ++steps;
  const double margin = best[size] - second[size];
  const double turns = margin * 16777216.0 / (1.01 * (steps + chars)) + best[size] - 1;
  const double resets = kReset + lowest - 2;
  return static_cast<float>(std::max(0.0, std::min(turns, resets)));
}

// The best path as a library finds it: of equal ones the first that is met. `added` is by node of the trie.
template <class Real>
Real Unigram::recur(const uint8_t* text, uint32_t size, Real score, std::vector<Real>& kept, const HugeVector<Real>& added,
                    Real unknown, Scratch& scratch) const {
  grow(kept, size + 1);
  grow(scratch.from, size + 1);
  grow(scratch.node, size + 1);
  Real* const scores = kept.data();
  uint32_t* const from = scratch.from.data();
  uint32_t* const nodes = scratch.node.data();
  std::fill(from, from + size + 1, kNowhere);
  scores[0] = score;
  uint32_t frontier = 0;
  for (uint32_t at = 0; at < size;) {
    Real here = scores[at];
    if (std::is_same_v<Real, float> && (here < -kReset || here > kReset)) {
      for (uint32_t i = at; i <= frontier; ++i) {
        if (i == at || from[i] != kNowhere) scores[i] -= here;
      }
      here = 0;
    }
    const uint32_t width = char_size(text[at]);
    bool single = false;
    const auto reach = [&](uint32_t end, Real more, uint32_t node) {
      frontier = std::max(frontier, end);
      const Real sum = more + here;
      if (from[end] == kNowhere || sum > scores[end]) {
        scores[end] = sum;
        from[end] = at;
        nodes[end] = node;
      }
    };
    uint32_t node = Trie::kRoot;
    for (uint32_t end = at; end < size && text[end] && trie_.step(node, text[end]);) {
      ++end;
      if (!trie_.has_value(node)) continue;
      single |= end - at == width;
      reach(end, added[node], node);
    }
    if (!single) reach(at + width, unknown, kUnknown);
    at += width;
  }
  return scores[size];
}

float Unigram::follow(const uint8_t* text, uint32_t size, float score, Scratch& scratch, Tokens& tokens) const {
  const float end = recur<float>(text, size, score, scratch.score, scores_, unknown_score_, scratch);
  trace(text, size, scratch, tokens);
  return end;
}

void Unigram::follow_double(const uint8_t* text, uint32_t size, Scratch& scratch, Tokens& tokens) const {
  recur<double>(text, size, 0, scratch.best, doubles_, unknown_double_, scratch);
  trace(text, size, scratch, tokens);
}

// From the end back, then turned around.
void Unigram::trace(const uint8_t* text, uint32_t size, const Scratch& scratch, Tokens& tokens) const {
  thread_local std::vector<uint32_t> ends;
  ends.clear();
  for (uint32_t end = size; end > 0; end = scratch.from[end]) ends.push_back(end);
  tokens.clear();
  for (size_t i = ends.size(); i-- > 0;) {
    const uint32_t end = ends[i], node = scratch.node[end], begin = scratch.from[end];
    if (node == kUnknown) {
      tokens.add_unknown(*model_, text + begin, end - begin, unknown_score_);
    } else {
      tokens.add(trie_.value(node), scores_[node]);
    }
  }
}

}  // namespace tokpress
