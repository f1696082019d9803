#include "encoder.hpp"

#include <cmath>
#include <stdexcept>

#include "utf8.hpp"

namespace tokpress {
namespace {

constexpr uint32_t kByte = UINT32_MAX;

template <class T>
void give_back(std::vector<T>& values) {
  if (values.capacity() * sizeof(T) > Worker::kKeptBytes) std::vector<T>().swap(values);
}

}  // namespace

void Worker::tidy() {
  text.shrink(kKeptBytes);
  replaced.shrink(kKeptBytes);
  give_back(origins);
  give_back(bpe.symbols);
  give_back(bpe.heap);
  give_back(unigram.best);
  give_back(unigram.second);
  give_back(unigram.score);
  give_back(unigram.from);
  give_back(unigram.node);
  tokens.give_back(kKeptBytes);
}

Encoder::Encoder(Model model, bool simd) : model_(std::move(model)), normalizer_(model_, simd), cuts_(model_) {
  if (model_.bpe) {
    bpe_ = Bpe(model_);
  } else {
    unigram_ = Unigram(model_);
  }
  merges_unknown_ = !model_.byte_fallback;
  alone_ = model_.bpe || model_.json.used;
  if (model_.json.used) pretokens_ = Pretokens(model_);
  for (const Piece& piece : model_.pieces) {
    lengths_.push_back(piece.type == PieceType::byte ? kByte
                       : piece.matches_text()        ? static_cast<uint32_t>(piece.canonical.size())
                                                     : 0);
  }
}

void Encoder::encode(const uint8_t* text, size_t size, Worker& worker, Output& out) const {
  const size_t begin = out.size();
  if (model_.json.used) {
    pretokens_.run(text, size, worker.replaced, worker.text);
  } else {
    normalizer_.run(text, size, worker.text);
  }
  encode_canonical(worker, out);
  if (merges_unknown_) merge_unknown(begin, out);
  worker.tidy();
}

void Encoder::encode(const uint8_t* text, size_t size, Worker& worker, Output& out, Buffer<int64_t>& starts) const {
  const size_t begin = out.size();
  normalizer_.run(text, size, worker.text, worker.origins);
  encode_canonical(worker, out);
  find_starts(begin, worker, out, starts);
  worker.tidy();
}

void Encoder::encode_canonical(Worker& worker, Output& out) const {
  const uint8_t* const text = worker.text.data();
  const size_t size = worker.text.size();
  if (!size) return;
  if (size > kMostBytes) throw std::length_error("a document of more than 2 GB");
  Segment segments[kBatch];
  uint32_t count = 0;
  float score = 0;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    Segment& segment = segments[count++];
    segment.text = text + begin;
    segment.size = static_cast<uint32_t>(end - begin);
    if (segment.size <= Cache::kShortBytes) {
      Cache::short_key(segment.text, segment.size, segment.key);
      const Cache::Entry* bucket = worker.cache.bucket(segment.key.hash);
      __builtin_prefetch(bucket);
      __builtin_prefetch(bucket + 1);
    }
    begin = end;
    if (count == kBatch) {
      alone_ ? flush<true>(segments, count, score, worker, out) : flush<false>(segments, count, score, worker, out);
      count = 0;
    }
  };
  uint32_t previous = 0;
  for (size_t at = 0; at < size; at += 64) {
    uint64_t cuts = cuts_.find(text, at, size, previous);
    if (at == 0) cuts &= ~uint64_t{1};  // nothing stands before the text
    for (; cuts; cuts &= cuts - 1) add(at + static_cast<size_t>(__builtin_ctzll(cuts)));
  }
  add(size);
  if (count) alone_ ? flush<true>(segments, count, score, worker, out) : flush<false>(segments, count, score, worker, out);
}

template <bool kAlone>
void Encoder::flush(const Segment* segments, uint32_t count, float& score, Worker& worker, Output& out) const {
  uint32_t* to = out.room(kBatch * Cache::kShortIds);
  float sum = score;
  for (uint32_t i = 0; i < count; ++i) {
    const Segment& segment = segments[i];
    const Cache::Entry* entry =
        segment.size <= Cache::kShortBytes ? worker.cache.find(segment.key, segment.size) : nullptr;
    // A limit is below the library's reset, so a score that has to be reset passes none.
    if (entry && (kAlone || std::fabs(sum) < entry->limit)) {
      std::memcpy(to, entry->ids, sizeof entry->ids);
      to += entry->count;
      if constexpr (!kAlone) sum = (((sum + entry->scores[0]) + entry->scores[1]) + entry->scores[2]) + entry->scores[3];
      continue;
    }
    out.advance(static_cast<size_t>(to - out.room(0)));
    score = sum;
    missed(segment, score, worker, out);
    sum = score;
    to = out.room(kBatch * Cache::kShortIds);
  }
  out.advance(static_cast<size_t>(to - out.room(0)));
  score = sum;
}

void Encoder::encode_alone(const Segment& segment, Worker& worker) const {
  if (model_.bpe) return bpe_.encode(segment.text, segment.size, worker.bpe, worker.tokens);
  unigram_.follow_double(segment.text, segment.size, worker.unigram, worker.tokens);
}

// Not kept, or kept but not to be trusted with this score.
void Encoder::missed(const Segment& segment, float& score, Worker& worker, Output& out) const {
  const bool is_short = segment.size <= Cache::kShortBytes;
  if (std::fabs(score) > Unigram::kReset) score = 0;  // one position is open at a cut; `follow` would do it, too
  Answer answer;
  if (is_short && !alone_) {
    if (const Cache::Entry* entry = worker.cache.find(segment.key, segment.size)) {
      if (std::fabs(score) < entry->limit) return append({entry->ids, entry->scores, entry->count, 0}, score, out);
      score = unigram_.follow(segment.text, segment.size, score, worker.unigram, worker.tokens);
      float ignored = 0;
      return append(worker.tokens.answer(0), ignored, out);
    }
  }
  const uint64_t hash = segment.size <= Cache::kMostBytes ? Cache::long_hash(segment.text, segment.size) : 0;
  bool known = segment.size <= Cache::kMostBytes && worker.cache.find_long(hash, segment.text, segment.size, answer);
  if (!known && segment.size <= Cache::kMostBytes) {
    if (alone_) {
      encode_alone(segment, worker);
      answer = worker.tokens.answer(Unigram::kReset);
    } else {
      const float limit = unigram_.settle(segment.text, segment.size, worker.unigram, worker.tokens);
      answer = worker.tokens.answer(limit);
    }
    if (is_short && answer.count <= Cache::kShortIds) {
      worker.cache.put(segment.key, segment.size, answer);
    } else {
      worker.cache.put_long(hash, segment.text, segment.size, answer);
    }
    known = true;
  }
  if (known && (alone_ || std::fabs(score) < answer.limit)) return append(answer, score, out);
  if (alone_) {
    encode_alone(segment, worker);
  } else {
    score = unigram_.follow(segment.text, segment.size, score, worker.unigram, worker.tokens);
  }
  float ignored = 0;
  append(worker.tokens.answer(0), ignored, out);
}

void Encoder::append(const Answer& answer, float& score, Output& out) const {
  std::memcpy(out.room(answer.count), answer.ids, 4 * size_t{answer.count});
  out.advance(answer.count);
  for (uint32_t i = 0; i < answer.count; ++i) score = score + answer.scores[i];
}

// Without byte fallback unknown characters beside each other are one token.
void Encoder::merge_unknown(size_t begin, Output& out) const {
  uint32_t* ids = out.data();
  const size_t end = out.size();
  const uint32_t unknown = model_.unknown_id;
  size_t to = begin;
  for (size_t i = begin; i < end; ++i) {
    if (ids[i] == unknown && to > begin && ids[to - 1] == unknown) continue;
    ids[to++] = ids[i];
  }
  out.drop(end - to);
}

// Pieces say how long they are; an unknown character is read from the text.
void Encoder::find_starts(size_t begin, Worker& worker, Output& out, Buffer<int64_t>& starts) const {
  const uint8_t* text = worker.text.data();
  uint32_t* ids = out.data();
  size_t at = 0, to = begin;
  for (size_t i = begin; i < out.size();) {
    const auto start = static_cast<int64_t>(worker.origins[at]);
    const uint32_t length = lengths_[ids[i]];
    if (length == kByte) {
      const size_t count = text[at] == ' ' ? 3 : char_size(text[at]);
      at += char_size(text[at]);
      for (size_t k = 0; k < count; ++k) ids[to++] = ids[i++], starts.push_back(start);
      continue;
    }
    at += length ? length : char_size(text[at]);
    const bool merged = length == 0 && merges_unknown_ && to > begin && ids[to - 1] == model_.unknown_id;
    if (!merged) ids[to++] = ids[i], starts.push_back(start);
    ++i;
  }
  out.drop(out.size() - to);
}

}  // namespace tokpress
