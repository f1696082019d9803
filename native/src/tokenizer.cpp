#include "tokenizer.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "utf8.hpp"

namespace tokpress {

struct Tokenizer::Part {
  size_t begin = 0, end = 0;  // documents
  Batch batch;
  std::exception_ptr error;
};

Tokenizer::Tokenizer(Model model, std::vector<std::pair<std::string, uint32_t>> literals, bool simd)
    : encoder_(std::move(model), simd) {
  std::vector<std::pair<std::string_view, uint32_t>> strings;
  for (const auto& [text, id] : literals) {
    if (text.empty() || text.find('\0') != std::string::npos) throw Refused("a literal is empty or holds a null character");
    const size_t most = encoder_.model().json.used ? size_t{1} << 24 : encoder_.model().pieces.size();
    if (id >= most) throw Refused("a literal has an id outside the vocabulary");
    strings.emplace_back(text, id);
    starts_literal_[static_cast<uint8_t>(text[0])] = true;
  }
  literals_ = Trie(std::move(strings));
}

Tokenizer::~Tokenizer() {
  for (auto& worker : workers_) delete worker.load();
}

std::unique_ptr<Worker> Tokenizer::take_worker() const {
  for (auto& kept : workers_) {
    if (kept.load(std::memory_order_relaxed)) {
      if (Worker* worker = kept.exchange(nullptr)) return std::unique_ptr<Worker>(worker);
    }
  }
  return std::make_unique<Worker>();
}

void Tokenizer::keep_worker(std::unique_ptr<Worker> worker) const {
  for (auto& kept : workers_) {
    Worker* none = nullptr;
    if (kept.compare_exchange_strong(none, worker.get())) {
      worker.release();
      return;
    }
  }
}

Batch Tokenizer::encode(const Documents& documents, size_t threads, bool with_starts) const {
  if (with_starts && encoder_.model().json.used) throw std::invalid_argument("no token starts for a tokenizer.json");
  // A part for each thread, about equal in bytes.
  uint64_t total = 0;
  for (size_t i = 0; i < documents.count; ++i) total += documents.size(i);
  constexpr uint64_t kWorthAThread = 32 * 1024;  // bytes
  const uint64_t most = std::max<uint64_t>(1, total / kWorthAThread);
  const size_t count = std::max<size_t>(1, std::min<uint64_t>({threads, most, std::max<size_t>(documents.count, 1)}));
  std::vector<Part> parts(count);
  uint64_t bytes = 0;
  size_t at = 0;
  for (size_t k = 0; k < count; ++k) {
    parts[k].begin = at;
    const uint64_t until = total * (k + 1) / count;
    while (at < documents.count && (k + 1 == count || bytes + documents.size(at) / 2 < until)) bytes += documents.size(at++);
    parts[k].end = at;
  }
  const auto work = [&](Part& part) {
    try {
      encode_part(documents, part, with_starts);
    } catch (...) {
      part.error = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  for (size_t k = 1; k < count; ++k) {
    try {
      helpers.emplace_back(work, std::ref(parts[k]));
    } catch (const std::system_error&) {  // no more threads: this one does it
      work(parts[k]);
    }
  }
  work(parts[0]);
  for (auto& helper : helpers) helper.join();
  for (const Part& part : parts) {
    if (part.error) std::rethrow_exception(part.error);
  }

  return count == 1 ? std::move(parts[0].batch) : joined(parts);
}

// The first part's arrays go on with those of the others, each of which a thread of its own copies.
Batch Tokenizer::joined(std::vector<Part>& parts) {
  Batch batch = std::move(parts[0].batch);
  size_t ids = 0, ends = 0, starts = 0;
  for (size_t k = 1; k < parts.size(); ++k) {
    ids += parts[k].batch.ids.size();
    ends += parts[k].batch.ends.size();
    starts += parts[k].batch.starts.size();
  }
  uint32_t* to_ids = batch.ids.room(ids);
  int64_t* to_ends = batch.ends.room(ends);
  int64_t* to_starts = batch.starts.room(starts);
  std::vector<std::thread> helpers;
  auto before = static_cast<int64_t>(batch.ids.size());
  for (size_t k = 1; k < parts.size(); ++k) {
    const Batch& part = parts[k].batch;
    const auto copy = [=, &part] {
      std::copy_n(part.ids.data(), part.ids.size(), to_ids);
      std::transform(part.ends.data(), part.ends.data() + part.ends.size(), to_ends,
                     [=](int64_t end) { return before + end; });
      std::copy_n(part.starts.data(), part.starts.size(), to_starts);
    };
    constexpr size_t kWorthAThread = size_t{1} << 18;  // ids
    try {
      if (k + 1 < parts.size() && part.ids.size() > kWorthAThread) {
        helpers.emplace_back(copy);
      } else {
        copy();
      }
    } catch (const std::system_error&) {
      copy();
    }
    to_ids += part.ids.size();
    to_ends += part.ends.size();
    to_starts += part.starts.size();
    before += static_cast<int64_t>(part.ids.size());
  }
  for (auto& helper : helpers) helper.join();
  batch.ids.advance(ids);
  batch.ends.advance(ends);
  batch.starts.advance(starts);
  return batch;
}

void Tokenizer::encode_part(const Documents& documents, Part& part, bool with_starts) const {
  auto worker = take_worker();
  part.batch.ends.room(part.end - part.begin);
  size_t bytes = 0;
  // The first part has room for all, as the others are put behind it; pages are not touched before they are used.
  for (size_t i = part.begin; i < (part.begin ? part.end : documents.count); ++i) bytes += documents.size(i);
  part.batch.ids.room(bytes / 2);
  for (size_t i = part.begin; i < part.end; ++i) {
    const uint8_t* text = documents.text(i);
    const size_t size = documents.size(i);
    const size_t invalid = first_invalid(text, size);
    if (invalid != size) {
      throw std::invalid_argument("document " + std::to_string(i) + " is no valid UTF-8 at byte " + std::to_string(invalid));
    }
    encode_document(text, size, *worker, part, with_starts);
    part.batch.ends.push_back(static_cast<int64_t>(part.batch.ids.size()));
  }
  keep_worker(std::move(worker));
}

Buffer<int64_t> Tokenizer::unsettled(const Documents& documents) const {
  Buffer<int64_t> found;
  for (size_t i = 0; i < documents.count; ++i) {
    const uint8_t* text = documents.text(i);
    const size_t size = documents.size(i);
    if (first_invalid(text, size) == size && encoder_.unsettled(text, size)) found.push_back(static_cast<int64_t>(i));
  }
  return found;
}

void Tokenizer::encode_document(const uint8_t* text, size_t size, Worker& worker, Part& part, bool with_starts) const {
  if (literals_.empty()) return encode_between(text, size, 0, worker, part, with_starts);
  size_t begin = 0;
  for (size_t i = 0; i < size;) {
    uint32_t id = 0;
    const size_t length = starts_literal_[text[i]] ? literals_.longest(text + i, size - i, id) : 0;
    if (!length) {
      ++i;
      continue;
    }
    encode_between(text + begin, i - begin, begin, worker, part, with_starts);
    *part.batch.ids.room(1) = id;
    part.batch.ids.advance(1);
    if (with_starts) part.batch.starts.push_back(static_cast<int64_t>(i));
    begin = i += length;
  }
  encode_between(text + begin, size - begin, begin, worker, part, with_starts);
}

void Tokenizer::encode_between(const uint8_t* text, size_t size, size_t at, Worker& worker, Part& part,
                               bool with_starts) const {
  if (!size) return;
  if (!with_starts) return encoder_.encode(text, size, worker, part.batch.ids);
  const size_t before = part.batch.starts.size();
  encoder_.encode(text, size, worker, part.batch.ids, part.batch.starts);
  for (size_t i = before; i < part.batch.starts.size(); ++i) part.batch.starts[i] += static_cast<int64_t>(at);
}

}  // namespace tokpress
