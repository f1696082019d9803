// Fuzz target: any text, with the models of the directory TOKPRESS_FUZZ_MODELS; the first byte chooses one. With and without
// AVX2, cold and warm, and with token starts the ids are the same.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "../src/encoder.hpp"
#include "../src/utf8.hpp"

using namespace tokpress;

namespace {

constexpr unsigned kLogEntries = 13;  // a small cache: some are made anew each time

struct Pair {
  std::unique_ptr<Encoder> fast, plain;
  Worker worker{kLogEntries};
};

std::vector<std::unique_ptr<Pair>>& models() {
  static std::vector<std::unique_ptr<Pair>> loaded;
  if (!loaded.empty()) return loaded;
  const char* directory = std::getenv("TOKPRESS_FUZZ_MODELS");
  if (!directory) std::abort();
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto pair = std::make_unique<Pair>();
    pair->fast = std::make_unique<Encoder>(parse_model(data), true);
    pair->plain = std::make_unique<Encoder>(parse_model(data), false);
    loaded.push_back(std::move(pair));
  }
  return loaded;
}

bool same(const Output& a, const Output& b) {
  return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!size) return 0;
  Pair& pair = *models()[data[0] % models().size()];
  // A copy of its own, so that a read beyond it is seen.
  const std::vector<uint8_t> text(data + 1, data + size);
  if (first_invalid(text.data(), text.size()) != text.size()) return 0;
  Output kept, cold, plain, tracked;
  Worker fresh(kLogEntries), other(kLogEntries);
  pair.fast->encode(text.data(), text.size(), pair.worker, kept);
  pair.fast->encode(text.data(), text.size(), fresh, cold);
  pair.plain->encode(text.data(), text.size(), other, plain);
  Buffer<int64_t> starts;
  pair.fast->encode(text.data(), text.size(), fresh, tracked, starts);
  if (!same(kept, cold) || !same(kept, plain) || !same(kept, tracked) || starts.size() != kept.size()) __builtin_trap();
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i] < (i ? starts[i - 1] : 0) || starts[i] > static_cast<int64_t>(text.size())) __builtin_trap();
  }
  return 0;
}
