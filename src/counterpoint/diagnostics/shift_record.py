"""What is known of samples that are not as those of training were: plain records that load without torch."""

from counterpoint.core.run_records import Figure, Record, Text

ERRORS = 4.0  # standard deviations of shuffled parts
APART = 0.6  # area under the curve from which on parts are told apart; 0.5 by chance


class ToldApart(Record):
    """How well a linear classifier tells held-out samples from as many training samples of the same classes.

    Attributes:
        auc: probability that it puts a held-out sample above a training sample, each left out of its fit.
        chance: the same of parts that were shuffled within classes, in the mean.
        error: standard deviation of that.
        num_samples: of both parts.
        has_classes: whether as many of each class were compared.
    """

    auc: Figure = None
    chance: Figure = None
    error: Figure = None
    num_samples: int = 0
    has_classes: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether that is beyond chance, and enough to matter."""
        if self.auc is None or self.chance is None or self.error is None:
            return False
        return self.auc >= APART and self.auc - self.chance >= ERRORS * self.error


class AlteredInput(Record):
    """Pictures that differ from those of training by one change; undoing it restores the distribution of channels.

    Attributes:
        change: what was done to them, in words; two where either explains it.
        distance: from the statistics of training, in deviations of single pictures.
        undone: the same after the change was undone.
    """

    change: Text = ""
    distance: Figure = None
    undone: Figure = None

    @property
    def sentence(self) -> str:
        """What was found."""
        return f"the pictures look like those of training, but {self.change}"
