"""What a picture looks like and in which company it is mixed depends on its key and its part alone."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.auto_augment import AugmentOp

from gkalib.data.image_set import Arrays
from gkalib.data.images import made_up
from gkalib.models import ViTConfig
from gkalib.training import Augment, VisionConfig
from gkalib.training.distributed import Processes
from gkalib.training.sampler import Sampler, key
from gkalib.training.vision import (
    ImageWorkload,
    Samples,
    augmented,
    evaluation_transform,
    held_out,
    mixer,
    seeded,
    training_transform,
)
from tests.tolerance import equal
from tests.training.runs import picture_run

EVERYTHING = Augment(
    crop=(0.08, 1.0), flip=0.5, policy="rand-m9-mstd0.5-inc1", erase=0.5, mixup=0.8, cutmix=1.0, repeats=3
)
DATA = made_up(8, 3, train=40, held_out=13)


def processes(rank: int = 0, size: int = 1) -> Processes:
    return Processes(rank, size, torch.device("cpu"))


def run_with(augment: Augment = EVERYTHING, **changes) -> VisionConfig:
    return picture_run(**{"augment": augment, "batch": 8, "device_batch": 2, "smoothing": 0.1} | changes)


def pictures(run: VisionConfig, rank: int = 0, size: int = 1, workers: int = 0) -> ImageWorkload:
    return ImageWorkload(run, DATA, processes(rank, size), workers=workers)


def test_one_image_is_augmented_as_a_run_reads_it():
    run = run_with()
    image = DATA.train.picture(3)
    read, _ = Samples(DATA.train, training_transform(run))[3, 7]
    equal(augmented(run, image, 7), read)
    assert not torch.equal(augmented(run, image, 8), read)


def parts(run: VisionConfig, start: int = 0, **where: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images, targets) for images, targets, _ in pictures(run, **where).parts(start)]


def same(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def close(first: torch.Tensor, second: torch.Tensor) -> None:
    torch.testing.assert_close(first, second, atol=1e-6, rtol=0)


def photo(width: int = 12, height: int = 10, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


def test_draws_come_from_the_seed_and_leave_the_generators_as_they_were():
    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = draws()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    with seeded(key(0, 1)):
        first = draws()
    assert draws() == expected
    with seeded(key(0, 1)):
        assert draws() == first
    with seeded(key(0, 2)):
        assert draws() != first


def test_the_generators_are_restored_after_an_error():
    torch.manual_seed(3)
    state = random.getstate(), torch.get_rng_state()
    with pytest.raises(KeyError), seeded(1):
        random.random(), torch.rand(())
        raise KeyError
    assert random.getstate() == state[0] and torch.equal(torch.get_rng_state(), state[1])


def test_a_training_picture_is_a_function_of_its_key():
    transform = training_transform(run_with())
    shown = []
    for seed in (5, 5, 6):
        with seeded(seed):
            shown.append(transform(photo()))
    assert torch.equal(shown[0], shown[1]) and not torch.equal(shown[0], shown[2])
    assert shown[0].shape == (3, 8, 8)


def test_without_augmentation_training_and_evaluation_see_the_same():
    run = run_with(Augment())
    equal(training_transform(run)(photo(9, 14)), evaluation_transform(run)(photo(9, 14)))


def test_colors_are_normalized_by_imagenets_mean_and_gray_by_a_half():
    shown = evaluation_transform(run_with(Augment()))(Image.new("RGB", (8, 8), (124, 116, 104)))
    assert shown.abs().max() < 0.01
    gray = picture_run(model=ViTConfig(image_size=8, patch_size=4, channels=1))
    equal(evaluation_transform(gray)(Image.new("L", (8, 8), 255)), torch.ones(1, 8, 8))


def test_evaluation_looks_at_the_middle():
    pixels = np.zeros((16, 32), np.uint8)
    pixels[4:12, 12:20] = 255
    run = run_with(Augment(), eval_crop=0.5)
    assert (evaluation_transform(run)(Image.fromarray(pixels)) > 2).all()


@pytest.mark.parametrize("channels, mode", [(1, "RGB"), (3, "L"), (1, "L"), (3, "RGBA")])
def test_gray_and_color_go_into_any_model(channels, mode):
    model = ViTConfig(image_size=8, patch_size=4, channels=channels)
    transform = training_transform(run_with(model=model))
    for seed in range(60):  # every operation of the policy has its turn
        with seeded(seed):
            shown = transform(photo(mode=mode))
        assert shown.shape == (channels, 8, 8) and shown.isfinite().all()


def test_mirror_images_and_erased_rectangles():
    plain, picture = evaluation_transform(run_with(Augment())), photo(8, 8)
    flipped = training_transform(run_with(Augment(flip=1.0)))(picture)
    assert torch.equal(flipped, plain(picture).flip(-1))
    erased = training_transform(run_with(Augment(erase=1.0)))(picture)
    changed = (erased != plain(picture)).all(0)
    assert 0 < changed.sum() < 64


def test_the_crop_has_the_share_that_is_asked_for():
    # A picture whose value is the column: the range that a crop shows is its width.
    columns = np.tile(np.arange(64, dtype=np.uint8) * 4, (64, 1))
    run = run_with(Augment(crop=(0.25, 0.25), ratio=(1.0, 1.0)))
    widths = []
    for seed in range(20):
        with seeded(seed):
            shown = training_transform(run)(Image.fromarray(columns).convert("RGB"))
        widths.append((shown[0].max() - shown[0].min()).item() * 0.229 * 255 / 4)
    assert max(widths) < 32 and min(widths) > 20  # half of 64, less the outermost of eight pixels' middles


def test_the_strongest_posterizing_is_black():
    run = run_with(Augment(policy="rand-m15-n2-mstd1.0-inc1"))
    transform = training_transform(run)
    operations = [
        operation for step in transform.transforms[2].transforms for operation in getattr(step, "ops", [])
    ]
    actual = [
        operation
        for operation in operations
        if isinstance(operation, AugmentOp) and operation.name == "PosterizeIncreasing"
    ]
    assert len(actual) == 1
    actual[0].prob = 1.0
    assert np.asarray(actual[0](photo())).max() == 0
    actual[0].magnitude, actual[0].magnitude_std = 5, 0
    black = np.asarray(actual[0](photo()))
    assert np.array_equal(black, np.asarray(photo()) & 0b11000000)


def test_how_a_part_is_mixed_is_a_function_of_its_key():
    run = run_with(Augment(mixup=0.8), device_batch=4)
    images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    first, again, other = (mixer(run)(images.clone(), labels, seed) for seed in (7, 7, 8))
    assert same(first, again) and not same(first, other)


def test_without_mixing_labels_are_smoothed_only():
    images, targets = mixer(run_with(Augment(), device_batch=1))(torch.ones(1, 3, 8, 8), torch.tensor([2]), 0)
    close(targets, torch.tensor([[1 / 30, 1 / 30, 0.9 + 1 / 30]]))
    assert (images == 1).all()


def test_the_order_and_the_parts_are_the_steps():
    run = run_with(Augment(), steps=3, smoothing=0.0)
    order = Sampler(len(DATA.train), run.batch, run.parts, run.seed)
    places = [(step, number) for step in range(3) for number in range(run.parts)]
    for place, (images, targets) in zip(places, parts(run), strict=True):
        rows = order.part(*place).rows
        assert targets.argmax(1).tolist() == DATA.train.labels[rows].tolist()
        shown = [evaluation_transform(run)(DATA.train.picture(int(row))) for row in rows]
        assert torch.equal(images, torch.stack(shown))


@pytest.mark.parametrize("size", [2, 4])
def test_processes_have_the_parts_that_one_has(size):
    run = run_with(steps=3)
    alone = parts(run)
    for rank in range(size):
        mine = parts(run, rank=rank, size=size)
        assert all(same(a, b) for a, b in zip(mine, alone[rank::size], strict=True))


def test_the_number_of_workers_changes_nothing():
    run = run_with(steps=3)
    for first, second in zip(parts(run), parts(run, workers=2), strict=True):
        assert same(first, second)


def test_repeats_are_other_views_of_the_same_picture():
    run = run_with(Augment(crop=(0.1, 0.5), repeats=3), steps=1, batch=6, device_batch=6, smoothing=0.0)
    (images, targets) = parts(run)[0]
    labels = targets.argmax(1).tolist()
    assert labels[0] == labels[1] == labels[2] and labels[3] == labels[4] == labels[5]
    assert not torch.equal(images[0], images[1]) and not torch.equal(images[1], images[2])


@pytest.mark.parametrize("size, device_batch", [(1, 2), (1, 64), (2, 4), (3, 1), (13, 2)])
def test_held_out_pictures_are_each_seen_once(size, device_batch):
    run = run_with(Augment(), batch=device_batch, device_batch=device_batch)
    loaders = [list(held_out(run, DATA.held_out, processes(rank, size))) for rank in range(size)]
    assert len({len(loader) for loader in loaders}) == 1
    assert all(len(labels) for loader in loaders for _, labels in loader)
    pictures = torch.cat([images.flatten(1) for loader in loaders for images, _ in loader])
    whole = torch.stack([evaluation_transform(run)(DATA.held_out.picture(i)) for i in range(13)]).flatten(1)
    assert len(pictures) == 13
    assert {tuple(row) for row in pictures.tolist()} == {tuple(row) for row in whole.tolist()}


def test_a_measurement_may_read_a_part_evenly_spaced():
    run = run_with(Augment(), eval_images=4)
    labels = torch.cat([labels for _, labels in held_out(run, DATA.held_out, processes())])
    assert labels.tolist() == DATA.held_out.labels[[0, 3, 6, 9]].tolist()


def test_errors():
    with pytest.raises(
        ValueError, match=r"^train: mixup and cutmix mix the pictures of a part in pairs, .* not 3"
    ):
        mixer(run_with(batch=6, device_batch=3))
    with pytest.raises(
        ValueError, match=r"^train: of 13 held-out pictures, 14 processes cannot measure on 13"
    ):
        held_out(run_with(), DATA.held_out, processes(0, 14))
    with pytest.raises(
        ValueError, match=r"^train: of 13 held-out pictures, 1 processes cannot measure on 14"
    ):
        held_out(run_with(eval_images=14), DATA.held_out, processes())
    with pytest.raises(ValueError, match=r"^train: pictures have 1 or 3 channels, the model 2"):
        training_transform(run_with(model=ViTConfig(channels=2)))
    with pytest.raises(ValueError, match=r"^train: the data has no rows"):
        Sampler(len(Arrays(np.zeros((0, 8, 8), np.uint8), np.zeros(0))), 2, 1, 0)
